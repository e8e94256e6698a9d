#include "processing.hpp"

#include <algorithm>
#include <chrono>

#include "halotap/io/endpoint.hpp"
#include "halotap/io/session_ledger.hpp"
#include "halotap/pipeline/config.hpp"
#include "halotap/pipeline/errors.hpp"
#include "message.hpp"
#include "option_values.hpp"

namespace halotap::apps {
namespace {

using Clock = std::chrono::steady_clock;

// A recording held in memory: `samples` [frames, streams, channels], channels fastest.
struct Recording {
  std::vector<float> samples;
  std::int64_t frames = 0;
  bool stopped = false;
};

Recording read_whole(io::Source& source, const io::SessionSpec& spec) {
  const io::SourceInfo& info = source.info();
  const std::int64_t frame_samples = info.streams * info.channels;
  const std::int64_t block_frames = std::clamp<std::int64_t>((1 << 20) / frame_samples, 1, 4096);
  std::vector<float> block(static_cast<std::size_t>(block_frames * frame_samples));
  Recording recording;
  if (info.frames > 0) recording.samples.reserve(static_cast<std::size_t>(info.frames * frame_samples));
  while (true) {
    recording.stopped = spec.stop != nullptr && spec.stop->load(std::memory_order_relaxed);
    const std::int64_t frames = recording.stopped ? 0 : source.read(block.data(), block_frames);
    if (frames == 0) return recording;
    recording.samples.insert(recording.samples.end(), block.begin(), block.begin() + frames * frame_samples);
    recording.frames += frames;
    if (spec.on_progress) spec.on_progress(recording.frames);
  }
}

void require_ok(const pipeline::Engine& engine, pipeline::Status status) {
  if (status == pipeline::Status::kDeviceFailed) throw pipeline::DeviceError(engine.failure());
  if (status != pipeline::Status::kOk) {
    throw pipeline::Error("the engine refused a call: " + std::string(pipeline::to_string(status)));
  }
}

// The window of one stream on samples [frames, streams, channels].
template <typename Sample>
kernels::TensorView<Sample> stream_view(Sample* samples, std::int64_t stream, std::int64_t streams,
                                        std::int64_t channels, std::int64_t frames) {
  return {samples + stream * channels, channels, frames, 1, streams * channels};
}

Processed process_offline(io::Source& source, const pipeline::Model& model, const ProcessingOptions& options,
                          const OpenSinks& open_sinks, const io::SessionSpec& spec) {
  const Clock::time_point started = Clock::now();
  const io::SourceInfo& info = source.info();
  const auto& sinks = open_sinks(
      {info.streams, model.stack->out_channels(), info.rate_hz, info.frames, model.output_channels, info.arrangement});
  const Recording recording = read_whole(source, spec);
  const std::int64_t streams = info.streams;
  const std::int64_t frames = recording.frames;

  pipeline::Engine engine;
  engine.prepare(model, {.backend = options.backend,
                         .precision = options.precision,
                         .max_streams = streams,
                         .max_chunk_frames = std::max<std::int64_t>(frames, 1),
                         .worker_threads = options.worker_threads,
                         .fallback = options.fallback.value_or(pipeline::Fallback::kCpu),
                         .auto_chunk_frames = options.auto_chunk_frames,
                         .cuda = options.cuda});
  say_choice(engine, options.card_settings);
  const std::int64_t in_channels = engine.in_channels();
  const std::int64_t out_channels = engine.out_channels();
  std::vector<float> result(static_cast<std::size_t>(frames * streams * out_channels));
  std::vector<pipeline::StreamChunk> chunks(static_cast<std::size_t>(streams));
  for (std::int64_t s = 0; s < streams; ++s) {
    pipeline::StreamChunk& chunk = chunks[static_cast<std::size_t>(s)];
    require_ok(engine, engine.open(chunk.stream));
    chunk.input = stream_view(recording.samples.data(), s, streams, in_channels, frames);
    chunk.output = stream_view(result.data(), s, streams, out_channels, frames);
  }

  Processed processed;
  const Clock::time_point computing = Clock::now();
  require_ok(engine, engine.process(chunks));
  // In a flush it is behind the last frame.
  const std::int64_t failed_at = engine.failover() != nullptr ? engine.failover()->frames_before : frames;
  processed.report.step_time.record(Clock::now() - computing);
  for (const pipeline::StreamChunk& chunk : chunks) {
    std::int64_t flushed = 0;
    const std::int64_t emitted = chunk.frames_emitted;
    require_ok(engine, engine.flush(chunk.stream, chunk.output.slice(emitted, frames - emitted), flushed));
    processed.report.frames_out = emitted + flushed;
  }
  // All is written before any sink is finished: whatever fails until here leaves no output under its name.
  for (const auto& sink : sinks) {
    if (frames > 0) sink->write(result.data(), frames);
  }
  for (const auto& sink : sinks) sink->finish();
  if (const pipeline::Failover* failover = engine.failover()) {
    processed.report.failover = {*failover, failed_at, failover->at - started};
    if (spec.on_note) spec.on_note(describe(*processed.report.failover));
  }
  processed.report.frames_in = frames;
  processed.report.stopped = recording.stopped;
  processed.report.elapsed = Clock::now() - started;
  processed.report.engine = engine.counters();
  processed.device = engine.device();
  processed.lookahead_frames = engine.lookahead_frames();
  return processed;
}

Processed process_streaming(io::Source& source, const Subject& subject, const ProcessingOptions& options,
                            const OpenSinks& open_sinks, const io::SessionSpec& spec) {
  const io::SourceInfo& info = source.info();
  pipeline::PipelineSpec pipeline_spec;
  pipeline_spec.backend = options.backend;
  pipeline_spec.precision = options.precision;
  pipeline_spec.streams = info.streams;
  pipeline_spec.chunks = options.chunks;
  // A chunk longer than the recording is never full: room for the recording and one frame more is all it takes.
  if (info.frames >= 0 && !options.chunks.seed) {
    pipeline_spec.chunks.max_frames = std::min(options.chunks.max_frames, info.frames + 1);
  }
  pipeline_spec.worker_threads = options.worker_threads;
  pipeline_spec.fallback = options.fallback.value_or(pipeline::Fallback::kCpu);
  pipeline_spec.auto_chunk_frames = options.auto_chunk_frames;
  pipeline_spec.cuda = options.cuda;
  pipeline_spec.stages = subject.stages;
  pipeline::Pipeline pipeline(subject.model, pipeline_spec);
  say_choice(pipeline.engine(), options.card_settings);
  const pipeline::StageFormat& output = pipeline.output();
  const auto& sinks = open_sinks({info.streams, output.channels, output.rate_hz,
                                  info.frames < 0 ? info.frames : pipeline.output_frames(info.frames),
                                  output.channel_names, info.arrangement, pipeline.has_events()});
  io::SessionSpec session = spec;
  session.input = subject.input;
  Processed processed;
  processed.report = io::run_session(source, pipeline, sinks, session);
  processed.device = pipeline.engine().device();
  processed.lookahead_frames = pipeline.engine().lookahead_frames();
  processed.ledger = io::session_ledger(info, pipeline, sinks, spec.speed.has_value());
  return processed;
}

}  // namespace

std::vector<std::string> CudaOptions::names() const {
  std::vector<std::string> given;
  if (invocation) given.emplace_back("--cuda-invocation");
  if (wait) given.emplace_back("--cuda-wait");
  if (resident_clusters) given.emplace_back("--cuda-resident-clusters");
  return given;
}

pipeline::CudaSpec CudaOptions::over(pipeline::CudaSpec spec, pipeline::Backend backend) const {
  if (const auto given = names(); backend == pipeline::Backend::kCpu && !given.empty()) {
    throw pipeline::ConfigError(given.front() + ": expected backend cuda or auto, got cpu");
  }
  spec.invocation = invocation.value_or(spec.invocation);
  spec.wait = wait.value_or(spec.wait);
  spec.resident_clusters = resident_clusters.value_or(spec.resident_clusters);
  if (resident_clusters && spec.invocation != pipeline::CudaInvocation::kResident) {
    throw pipeline::ConfigError("--cuda-resident-clusters: expected --cuda-invocation resident, got " +
                                std::string(to_string(spec.invocation)));
  }
  return spec;
}

void add_backend_options(CLI::App& app, pipeline::Backend& backend, pipeline::Precision& precision) {
  add_value(app, "--backend", backend, pipeline::parse_backend, "auto|cpu|cuda", "auto, cpu or cuda",
            "What computes; auto is the faster one for this model, timed once and then remembered")
      ->default_str("auto")
      ->group("Engine");
  add_value(app, "--precision", precision, pipeline::parse_precision, "fp32|tf32|bf16|fp16", "fp32, tf32, bf16 or fp16",
            "Arithmetic of the channel mix; what a backend lacks is refused")
      ->default_str("fp32")
      ->group("Engine");
}

void add_cuda_options(CLI::App& app, CudaOptions& options) {
  const pipeline::CudaSpec spec;
  constexpr const char* kGroup = "Card (backend cuda)";
  add_value(app, "--cuda-invocation", options.invocation, pipeline::parse_cuda_invocation, "layers|launch|resident",
            "layers, launch or resident",
            "A kernel a layer, for many streams; one for the stack, launched for each call; or one that stays")
      ->default_str(std::string(to_string(spec.invocation)))
      ->group(kGroup);
  add_value(app, "--cuda-wait", options.wait, pipeline::parse_wait, "spin|yield|block", "spin, yield or block",
            "What the thread does between two looks at the card: nothing, let others run, or sleep")
      ->default_str(std::string(to_string(spec.wait)))
      ->group(kGroup);
  add_count(app, "--cuda-resident-clusters", options.resident_clusters, {1, pipeline::kMaxResidentClusters},
            "What a resident kernel keeps of the card, in clusters of up to 16 processors")
      ->default_str(std::to_string(spec.resident_clusters))
      ->group(kGroup);
}

void add_workers_option(CLI::App& app, std::int64_t& worker_threads) {
  add_count(app, "--workers", worker_threads, {0, 256},
            "Threads that share the streams of a recording with this one; results do not depend on it")
      ->default_str(std::to_string(worker_threads))
      ->group("Engine");
}

void add_processing_options(CLI::App& app, ProcessingOptions& options, bool takes_fallback) {
  options.is_given = [&app](const std::string& name) { return app.count(name) > 0; };
  CLI::Option* model = app.add_option("--model", options.model_file, "Model file")->type_name("M.yaml");
  CLI::Option* pipeline =
      app.add_option(
             "--pipeline", options.pipeline_file,
             "Pipeline file instead: its model, stages and input.on_invalid, and what none of --backend, "
             "--precision, " +
                 std::string(takes_fallback ? "--fallback, " : "") +
                 "--cuda-invocation, --cuda-wait, --cuda-resident-clusters and --chunk says; not its source and sinks")
          ->excludes(model)
          ->type_name("P.yaml");
  app.add_option("--input", options.input, "Recording: a path, or scheme://path?option=value")
      ->required()
      ->type_name("ADDRESS");
  CLI::Option* chunk = add_value(app, "--chunk", options.chunks, parse_chunks, "N|random:SEED",
                                 "a whole number from 1 to " + std::to_string(kMaxChunkFrames) + ", or random:SEED",
                                 "Frames a chunk, or lengths drawn from 1 to " + std::to_string(kRandomChunkFrames) +
                                     " frames; results do not depend on it");
  chunk->default_str(std::to_string(options.chunks.max_frames))->group("Engine");
  app.add_flag("--offline", options.offline, "The whole recording as one chunk, held in memory, without the ring")
      ->excludes(chunk)
      ->excludes(pipeline)
      ->group("Engine");
  add_backend_options(app, options.backend, options.precision);
  add_workers_option(app, options.worker_threads);
  if (takes_fallback) {
    add_value(app, "--fallback", options.fallback, pipeline::parse_fallback, "cpu|none", "cpu or none",
              "What goes on when a card fails: the CPU, in fp32, or nothing (exit code 3)")
        ->default_str("cpu")
        ->group("Engine");
  }
  add_cuda_options(app, options.cuda_options);
}

std::vector<std::string> card_settings_of(const pipeline::PipelineConfig& config) {
  if (!config.is_cuda_given) return {};
  return {"model.cuda"};
}

std::vector<std::string> unused_settings(const pipeline::Engine& engine,
                                         const std::vector<std::string>& card_settings) {
  if (engine.backend() != pipeline::Backend::kCpu) return {};
  std::vector<std::string> settings = card_settings;
  // A rehearsal that does not happen is not to look survived.
  if (kernels::check_injected_failure()) settings.emplace_back("HALOTAP_INJECT_DEVICE_FAILURE");
  return settings;
}

std::string describe_choice(const pipeline::Engine& engine, const std::vector<std::string>& card_settings) {
  std::string text = engine.choice().reason;
  const char* before = "; not used: ";
  for (const std::string& setting : unused_settings(engine, card_settings)) {
    text += before + setting;
    before = ", ";
  }
  return text;
}

void say_choice(const pipeline::Engine& engine, const std::vector<std::string>& card_settings) {
  const pipeline::BackendChoice& choice = engine.choice();
  const bool is_worth_telling = engine.backend() != pipeline::Backend::kCpu || choice.figures ||
                                choice.is_without_card || !unused_settings(engine, card_settings).empty();
  if (is_worth_telling) say("backend " + engine.device() + ": " + describe_choice(engine, card_settings));
}

void say_unused_clusters(const std::string& pipeline_file, const pipeline::CudaSpec& cuda) {
  if (cuda.invocation != pipeline::CudaInvocation::kResident &&
      cuda.resident_clusters != pipeline::CudaSpec{}.resident_clusters) {
    say(pipeline_file + ": model.cuda.resident_clusters is not used: the invocation is " +
        std::string(to_string(cuda.invocation)));
  }
}

std::string describe_schemes() {
  const auto list = [](const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += ' ' + word;
    return text;
  };
  return "Inputs of this build: " + list(io::source_schemes()) + "\nOutputs of this build:" + list(io::sink_schemes());
}

Subject load_subject(ProcessingOptions& options) {
  Subject subject;
  if (!options.pipeline_file.empty()) {
    const pipeline::PipelineConfig config = pipeline::load_pipeline_config(options.pipeline_file);
    if (!options.is_given("--backend")) options.backend = config.backend;
    if (!options.is_given("--precision")) options.precision = config.precision;
    if (!options.fallback) options.fallback = config.fallback;
    options.cuda = config.cuda;
    options.card_settings = card_settings_of(config);
    if (!options.is_given("--chunk")) options.chunks = {.max_frames = config.chunk_frames};
    options.auto_chunk_frames = config.chunk_frames;
    options.model_file = config.model_file.string();
    subject.stages = config.stages;
    subject.input = config.input;
    subject.files.push_back(options.pipeline_file);
  }
  options.cuda = options.cuda_options.over(options.cuda, options.backend);
  for (const std::string& name : options.cuda_options.names()) options.card_settings.push_back(name);
  say_unused_clusters(options.pipeline_file, options.cuda);
  if (options.model_file.empty()) throw pipeline::ConfigError("expected --model or --pipeline, got neither");
  subject.model = pipeline::load_model(options.model_file);
  for (const auto& file : subject.model.files) subject.files.push_back(file.string());
  return subject;
}

std::unique_ptr<io::Source> open_input(const ProcessingOptions& options, const pipeline::Model& model) {
  auto source = io::open_source(options.input, {model.stack->in_channels(), model.input_channels, model.frame_rate_hz});
  if (source->info().is_live) {
    throw pipeline::ConfigError(options.input + ": expected a recording, got a live source; 'halotap run' takes those");
  }
  return source;
}

Processed process_recording(io::Source& source, const Subject& subject, const ProcessingOptions& options,
                            const OpenSinks& open_sinks, const io::SessionSpec& spec) {
  return options.offline ? process_offline(source, subject.model, options, open_sinks, spec)
                         : process_streaming(source, subject, options, open_sinks, spec);
}

}  // namespace halotap::apps
