#include "halotap/pipeline/calibration.hpp"

#include <algorithm>
#include <vector>

#include "halotap/pipeline/errors.hpp"

namespace halotap::pipeline {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kNoiseSamples = std::int64_t{1} << 16;  // 256 KiB, repeated

// Finite and never denormal. splitmix64 as in the chunker: the same noise on every machine.
std::vector<float> noise(std::int64_t samples) {
  std::vector<float> result(static_cast<std::size_t>(samples));
  std::uint64_t state = 0;
  for (float& sample : result) {
    state += 0x9E3779B97F4A7C15u;
    std::uint64_t mixed = state;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
    sample = static_cast<float>(mixed >> 40) / 16777216.0f - 0.5f;
  }
  return result;
}

void check(const Pipeline& pipeline, Status status) {
  if (status != Status::kOk) {
    throw DeviceError(std::string(to_string(status)) + ": " + pipeline.engine().failure());
  }
}

ChunkTime time_at(const LatencyHistogram& chunks, const char* name, double fraction) {
  return {name, chunks.count(), chunks.quantile(fraction)};
}

}  // namespace

Calibration calibrate(Pipeline& pipeline, std::chrono::nanoseconds limit) {
  Calibration calibration;
  const std::int64_t frame_samples = pipeline.output().streams * pipeline.engine().in_channels();
  const std::int64_t piece_frames = std::max<std::int64_t>(1, kNoiseSamples / frame_samples);
  const std::vector<float> samples = noise(piece_frames * frame_samples);
  const Clock::time_point end = Clock::now() + limit;
  while (calibration.chunk.count() == 0 || Clock::now() < end) {
    const Clock::time_point begin = Clock::now();
    const Pipeline::Step step = pipeline.step();
    check(pipeline, step.status);
    if (step.frames_in > 0) {
      calibration.chunk.record(Clock::now() - begin);
    } else {
      // The ring holds a chunk at least, and now less than one: there is room.
      pipeline.push(samples.data(), std::min(piece_frames, pipeline.writable_frames()));
    }
  }
  for (;;) {
    const Pipeline::Step step = pipeline.drain();
    check(pipeline, step.status);
    if (step.frames_in == 0 && step.frames_out == 0) return calibration;
  }
}

ChunkTime telling_time(const LatencyHistogram& chunks) {
  if (chunks.count() >= 1000) return time_at(chunks, "p99.9", 0.999);
  if (chunks.count() >= 100) return time_at(chunks, "p99", 0.99);
  return time_at(chunks, "longest", 1);
}

ChunkTime median_time(const LatencyHistogram& chunks) { return time_at(chunks, "median", 0.5); }

LatencyTerm measured_term(const ChunkTime& time) {
  LatencyTerm term;
  term.place = "compute";
  term.kind = LatencyKind::kMeasured;
  term.time_alone = time.time;
  term.key = {"model.file, model.backend"};
  term.note = time.quantile + " of " + std::to_string(time.chunks) + (time.chunks == 1 ? " chunk" : " chunks");
  return term;
}

}  // namespace halotap::pipeline
