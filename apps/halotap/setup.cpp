#include "setup.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "halotap/io/endpoint.hpp"
#include "halotap/pipeline/errors.hpp"
#include "message.hpp"

namespace halotap::apps {

std::int64_t frames_in(double seconds, double rate_hz) {
  return static_cast<std::int64_t>(std::clamp(std::ceil(seconds * rate_hz), 1.0, 1e15));
}

void check_budget(const pipeline::PipelineConfig& config) {
  if (!config.latency.budget_ms || io::is_device_source(config.source_uri)) return;
  for (const std::string& sink : config.sink_uris) {
    if (!io::is_device_sink(sink)) continue;
    throw pipeline::ConfigError("latency.budget_ms: expected a live source, or no sink that is a device, got " +
                                config.source_uri + " and " + sink +
                                ": at a sink's pace no frame has an instant of capture");
  }
}

std::unique_ptr<io::Source> open_source(const pipeline::PipelineConfig& config, const pipeline::Model& model,
                                        bool open_device) {
  io::SourceRequest request{model.stack->in_channels(), model.input_channels, model.frame_rate_hz};
  request.ring_capacity_ms = config.ring_capacity_ms;
  request.on_note = [](const std::string& note) { say(note); };
  request.open_device = open_device;
  return io::open_source(config.source_uri, request);
}

pipeline::PipelineSpec pipeline_spec(const pipeline::PipelineConfig& config, std::int64_t streams, double rate_hz) {
  pipeline::PipelineSpec spec;
  spec.backend = config.backend;
  spec.precision = config.precision;
  spec.fallback = config.fallback;
  spec.cuda = config.cuda;
  spec.streams = streams;
  spec.chunks.max_frames = config.chunk_frames;
  spec.ring_capacity_frames = frames_in(config.ring_capacity_ms / 1e3, rate_hz);
  spec.stages = config.stages;
  return spec;
}

io::SinkSpec sink_spec(const pipeline::Pipeline& pipeline, const io::SourceInfo& source, std::int64_t frames) {
  const pipeline::StageFormat& output = pipeline.output();
  io::SinkSpec spec{source.streams,       output.channels,
                    output.rate_hz,       frames < 0 ? frames : pipeline.output_frames(frames),
                    output.channel_names, source.arrangement,
                    pipeline.has_events()};
  spec.source_is_live = source.is_live;
  spec.on_note = [](const std::string& note) { say(note); };
  return spec;
}

bool needs_pace(const io::SourceInfo& source, const std::vector<std::unique_ptr<io::Sink>>& sinks) {
  return !source.is_live &&
         std::none_of(sinks.begin(), sinks.end(), [](const auto& sink) { return sink && sink->sets_pace(); });
}

}  // namespace halotap::apps
