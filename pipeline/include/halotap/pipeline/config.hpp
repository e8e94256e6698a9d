// A pipeline file, read and checked, as plain values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "halotap/pipeline/engine.hpp"
#include "halotap/pipeline/stage.hpp"

namespace halotap::pipeline {

// What to do with a block that finds the ring full.
enum class OnFull { kDropNewest };

// The contents of a `format: halotap-pipeline/1` file (docs/pipeline-file.md). Endpoints stay text: only io reads them.
struct PipelineConfig {
  std::string source_uri;
  std::filesystem::path model_file;  // resolved against the pipeline file's folder
  Backend backend = Backend::kAuto;
  Precision precision = Precision::kFp32;
  std::int64_t chunk_frames = 64;  // frames, 1 to kMaxChunkFrames (pipeline.hpp)
  double ring_capacity_ms = 500;   // milliseconds, > 0, at most an hour
  OnFull on_full = OnFull::kDropNewest;
  std::vector<StageEntry> stages;      // 0 to 64, in the order in which they run
  std::vector<std::string> sink_uris;  // 1 to 64
  std::string record_file;             // where the input is kept; empty: nowhere
};

// Reads a pipeline file. `overrides` are `key=value` with dotted keys ("model.backend=cpu", "chunk_frames=8"), applied
// before the check. Throws ConfigError naming file, place, key, expected and got. [control]
PipelineConfig load_pipeline_config(const std::filesystem::path& file, const std::vector<std::string>& overrides = {});

}  // namespace halotap::pipeline
