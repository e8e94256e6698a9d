// A pipeline file made ready: what `run` and `plan` have in common.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "halotap/io/sink.hpp"
#include "halotap/io/source.hpp"
#include "halotap/pipeline/config.hpp"
#include "halotap/pipeline/model.hpp"
#include "halotap/pipeline/pipeline.hpp"

namespace halotap::apps {

// `seconds` in frames, at least 1, held below what the conversion to a whole number can take.
std::int64_t frames_in(double seconds, double rate_hz);

// Throws ConfigError for a latency budget where a device as sink sets the pace of a recording.
void check_budget(const pipeline::PipelineConfig& config);

// The file's source as the model needs it; with `open_device` false a device is left alone. Throws what io::open_source
// throws.
std::unique_ptr<io::Source> open_source(const pipeline::PipelineConfig& config, const pipeline::Model& model,
                                        bool open_device = true);

// The file's pipeline behind so many streams side by side, `rate_hz` frames a second.
pipeline::PipelineSpec pipeline_spec(const pipeline::PipelineConfig& config, std::int64_t streams, double rate_hz);

// What the pipeline gives for `frames` frames of a source, -1 for an unknown number.
io::SinkSpec sink_spec(const pipeline::Pipeline& pipeline, const io::SourceInfo& source, std::int64_t frames);

// Whether nothing else sets the pace: the source is a recording, and no sink a device. A null sink is none.
bool needs_pace(const io::SourceInfo& source, const std::vector<std::unique_ptr<io::Sink>>& sinks);

}  // namespace halotap::apps
