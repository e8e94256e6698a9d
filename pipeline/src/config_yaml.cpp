#include "halotap/pipeline/config.hpp"

#include "halotap/pipeline/pipeline.hpp"
#include "stages_yaml.hpp"
#include "yaml_reader.hpp"

namespace halotap::pipeline {
namespace {

constexpr double kMaxRingCapacityMs = 3600e3;  // an hour
constexpr double kMaxBudgetMs = 3600e3;        // an hour
constexpr std::int64_t kMaxChunksOnEnd = 1000000;
constexpr std::size_t kMaxSinks = 64;
constexpr std::size_t kMaxStages = 64;
constexpr std::int64_t kMaxCpus = 1024;  // of a cpu_set_t

LatencyConfig read_latency(const YamlValue& value) {
  LatencyConfig latency;
  YamlMap map = value.map();
  if (const auto budget = map.optional("budget_ms")) latency.budget_ms = budget->positive_number(kMaxBudgetMs);
  if (const auto policy = map.optional("on_miss")) {
    latency.on_miss = policy->word({OnMiss::kCount, OnMiss::kSkipToLatest, OnMiss::kHoldLast, OnMiss::kStop});
    if (latency.on_miss != OnMiss::kCount && !latency.budget_ms) policy->refuse("count where there is no budget_ms");
  }
  if (const auto chunks = map.optional("miss_after")) latency.miss_after = chunks->integer(1, kMaxChunksOnEnd);
  if (const auto chunks = map.optional("recover_after")) latency.recover_after = chunks->integer(1, kMaxChunksOnEnd);
  if (const auto found = map.optional("budgets_ms")) {
    YamlMap budgets = found->map();
    const double most = latency.budget_ms.value_or(kMaxBudgetMs);
    const auto read = [&](const char* part, std::optional<double>& budget_ms) {
      if (const auto budget = budgets.optional(part)) budget_ms = budget->positive_number(most);
    };
    read("source", latency.budgets.source_ms);
    read("engine", latency.budgets.engine_ms);
    read("stages", latency.budgets.stages_ms);
    read("sinks", latency.budgets.sinks_ms);
    budgets.refuse_unknown_keys();
  }
  map.refuse_unknown_keys();
  return latency;
}

}  // namespace

static std::string_view to_string(OnFull) { return "drop_newest"; }

std::string_view to_string(OnMiss policy) {
  switch (policy) {
    case OnMiss::kCount:
      return "count";
    case OnMiss::kSkipToLatest:
      return "skip_to_latest";
    case OnMiss::kHoldLast:
      return "hold_last";
    case OnMiss::kStop:
      return "stop";
  }
  return "?";
}

static InputPolicy read_input(YamlMap input) {
  InputPolicy policy;
  if (const auto on_gap = input.optional("on_gap")) {
    policy.on_gap = on_gap->word({OnGap::kReset, OnGap::kMark, OnGap::kFill});
  }
  if (const auto on_invalid = input.optional("on_invalid")) {
    policy.on_invalid = on_invalid->word({OnInvalid::kPass, OnInvalid::kHold, OnInvalid::kZero});
  }
  input.refuse_unknown_keys();
  return policy;
}

static RealtimeSpec read_realtime(YamlMap realtime) {
  RealtimeSpec spec;
  if (const auto priority = realtime.optional("priority")) spec.priority = static_cast<int>(priority->integer(1, 99));
  if (const auto cpus = realtime.optional("cpus")) {
    for (const YamlValue& cpu : cpus->list(1, kMaxCpus)) {
      spec.cpus.push_back(static_cast<int>(cpu.integer(0, kMaxCpus - 1)));
    }
  }
  if (const auto lock_memory = realtime.optional("lock_memory")) spec.lock_memory = lock_memory->boolean();
  realtime.refuse_unknown_keys();
  return spec;
}

static CudaSpec read_cuda(YamlMap cuda) {
  CudaSpec spec;
  if (const auto invocation = cuda.optional("invocation")) {
    spec.invocation = invocation->word({CudaInvocation::kLayers, CudaInvocation::kLaunch, CudaInvocation::kResident});
  }
  if (const auto wait = cuda.optional("wait")) spec.wait = wait->word({Wait::kSpin, Wait::kYield, Wait::kBlock});
  if (const auto clusters = cuda.optional("resident_clusters")) {
    spec.resident_clusters = clusters->integer(1, kMaxResidentClusters);
  }
  cuda.refuse_unknown_keys();
  return spec;
}

PipelineConfig load_pipeline_config(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  YamlFile yaml(file, Fault::kConfig);
  for (const std::string& assignment : overrides) yaml.override_value(assignment);
  YamlMap root = yaml.root("halotap-pipeline/1");

  PipelineConfig config;
  YamlMap source = root.required("source").map();
  config.source_uri = source.required("uri").text();
  source.refuse_unknown_keys();

  YamlMap model = root.required("model").map();
  config.model_file = file.parent_path() / model.required("file").text();
  if (const auto backend = model.optional("backend")) {
    config.backend = backend->word({Backend::kAuto, Backend::kCpu, Backend::kCuda});
  }
  if (const auto precision = model.optional("precision")) {
    config.precision = precision->word({Precision::kFp32, Precision::kTf32, Precision::kBf16, Precision::kFp16});
  }
  if (const auto fallback = model.optional("fallback")) {
    config.fallback = fallback->word({Fallback::kCpu, Fallback::kNone});
  }
  if (const auto cuda = model.optional("cuda")) {
    config.cuda = read_cuda(cuda->map());
    config.is_cuda_given = true;
  }
  model.refuse_unknown_keys();

  if (const auto frames = root.optional("chunk_frames")) config.chunk_frames = frames->integer(1, kMaxChunkFrames);

  if (const auto found = root.optional("ring")) {
    YamlMap ring = found->map();
    if (const auto capacity = ring.optional("capacity_ms")) {
      config.ring_capacity_ms = capacity->positive_number(kMaxRingCapacityMs);
    }
    if (const auto on_full = ring.optional("on_full")) config.on_full = on_full->word({OnFull::kDropNewest});
    ring.refuse_unknown_keys();
  }

  if (const auto latency = root.optional("latency")) config.latency = read_latency(*latency);

  if (const auto stages = root.optional("stages")) {
    for (const YamlValue& entry : stages->list(0, kMaxStages)) config.stages.push_back(read_stage(entry));
  }

  for (const YamlValue& entry : root.required("sinks").list(1, kMaxSinks)) {
    YamlMap sink = entry.map();
    config.sink_uris.push_back(sink.required("uri").text());
    sink.refuse_unknown_keys();
  }
  if (const auto found = root.optional("record")) {
    YamlMap record = found->map();
    // One of the two at least.
    const auto output = record.optional("output");
    if (output) config.record_output_file = output->text();
    if (const auto input = output ? record.optional("file") : record.required("file")) {
      config.record_file = input->text();
    }
    record.refuse_unknown_keys();
  }
  if (const auto input = root.optional("input")) config.input = read_input(input->map());
  if (const auto realtime = root.optional("realtime")) config.realtime = read_realtime(realtime->map());
  root.refuse_unknown_keys();
  return config;
}

}  // namespace halotap::pipeline
