// A pipeline file, read and checked, as plain values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "halotap/pipeline/engine.hpp"
#include "halotap/pipeline/input_policy.hpp"
#include "halotap/pipeline/realtime_spec.hpp"
#include "halotap/pipeline/stage.hpp"

namespace halotap::pipeline {

// What to do with a block that finds the ring full.
enum class OnFull { kDropNewest };

// What to do while chunks come too late (docs/pipeline-file.md).
enum class OnMiss { kCount, kSkipToLatest, kHoldLast, kStop };
// As files spell it ("skip_to_latest"). [any thread]
std::string_view to_string(OnMiss policy);

// The parts of a chunk's way through the machine, whose times add up to the whole: waiting in the device and in rings
// until it is taken, the engine, the stages behind it, and the sinks until the last of them has taken it.
struct PartBudgets {
  std::optional<double> source_ms;  // each > 0, at most budget_ms
  std::optional<double> engine_ms;
  std::optional<double> stages_ms;
  std::optional<double> sinks_ms;
};

// Budgets of latency. In a pipeline file budget_ms is for a frame's whole way (ledger.hpp). A session (io/session.hpp)
// is given what is left of it for a chunk, from the intended capture instant of its last input frame until every sink
// has taken what came of it: algorithmic latency and what devices hold are taken off.
struct LatencyConfig {
  std::optional<double> budget_ms;  // milliseconds, > 0, at most an hour; none: nothing is ever late
  OnMiss on_miss = OnMiss::kCount;  // needs budget_ms when it is another
  std::int64_t miss_after = 3;      // late chunks on end until on_miss acts, 1 to 1000000
  std::int64_t recover_after = 8;   // chunks on time, on end, until it is left, 1 to 1000000
  PartBudgets budgets = {};         // misses of a part are counted, and on_miss does not act on them
};

// The contents of a `format: halotap-pipeline/1` file (docs/pipeline-file.md). Endpoints stay text: only io reads them.
struct PipelineConfig {
  std::string source_uri;
  std::filesystem::path model_file;  // resolved against the pipeline file's folder
  Backend backend = Backend::kAuto;
  Precision precision = Precision::kFp32;
  Fallback fallback = Fallback::kCpu;
  CudaSpec cuda = {};
  bool is_cuda_given = false;      // whether the file has the key
  std::int64_t chunk_frames = 64;  // frames, 1 to kMaxChunkFrames (pipeline.hpp)
  double ring_capacity_ms = 500;   // milliseconds, > 0, at most an hour
  OnFull on_full = OnFull::kDropNewest;
  LatencyConfig latency;
  std::vector<StageEntry> stages;      // 0 to 64, in the order in which they run
  std::vector<std::string> sink_uris;  // 1 to 64
  std::string record_file;             // where the input is kept; empty: nowhere
  std::string record_output_file;      // likewise the output behind the stages
  InputPolicy input;
  RealtimeSpec realtime;
};

// Reads a pipeline file. `overrides` are `key=value` with dotted keys ("model.backend=cpu", "chunk_frames=8"), applied
// before the check. Throws ConfigError naming file, place, key, expected and got. [control]
PipelineConfig load_pipeline_config(const std::filesystem::path& file, const std::vector<std::string>& overrides = {});

}  // namespace halotap::pipeline
