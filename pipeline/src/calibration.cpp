#include "halotap/pipeline/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "halotap/pipeline/clock.hpp"
#include "halotap/pipeline/errors.hpp"
#include "noise.hpp"

namespace halotap::pipeline {
namespace {

// As in a run the thread rests between bursts: one that never does has its turns cut short by the system, in the middle
// of a chunk. A burst is what a device delivers at once, or a chunk that is longer.
constexpr double kBurstSeconds = 0.001;
constexpr std::int64_t kMostChunks = 4000;  // enough for a p99.9
constexpr const char* kMedian = "median";
constexpr std::int64_t kNoiseSamples = std::int64_t{1} << 16;  // 256 KiB, repeated

void check(const Pipeline& pipeline, Status status) {
  if (status != Status::kOk) {
    throw DeviceError(pipeline.engine().failure());
  }
}

ComputeTime time_at(const Calibration& calibration, const char* name, double fraction) {
  ComputeTime time;
  time.quantile = name;
  time.chunks = calibration.chunk.count();
  time.chunk = calibration.chunk.quantile(fraction);
  time.engine = calibration.engine.quantile(fraction);
  time.stages = calibration.stages.quantile(fraction);
  time.chunk_p50 = calibration.chunk.quantile(0.5);
  time.engine_p50 = calibration.engine.quantile(0.5);
  time.stages_p50 = calibration.stages.quantile(0.5);
  return time;
}

}  // namespace

Calibration calibrate(Pipeline& pipeline, std::chrono::nanoseconds limit) {
  Calibration calibration;
  const LatencyTerm& chunk = pipeline.latency().front();
  const auto chunk_frames = static_cast<double>(chunk.frames + 1);
  const auto burst_chunks = static_cast<std::int64_t>(std::max(1.0, chunk.rate_hz * kBurstSeconds / chunk_frames));
  const std::chrono::nanoseconds burst_time = std::min<std::chrono::nanoseconds>(
      limit * burst_chunks / kMostChunks, std::chrono::nanoseconds(std::llround(kBurstSeconds * 1e9)));

  const std::int64_t frame_samples = pipeline.output().streams * pipeline.engine().in_channels();
  const std::int64_t piece_frames = std::max<std::int64_t>(1, kNoiseSamples / frame_samples);
  const std::vector<float> samples = noise(piece_frames * frame_samples);
  const Instant end = pipeline.clock().now() + limit;
  std::int64_t chunks = 0;  // since the last rest, and what they took
  std::chrono::nanoseconds spent{0};
  while (calibration.chunk.count() == 0 || pipeline.clock().now() < end) {
    const Pipeline::Step step = pipeline.step();
    check(pipeline, step.status);
    if (step.frames_in == 0) {
      // The ring holds a chunk at least, and now less than one: there is room.
      pipeline.push(samples.data(), std::min(piece_frames, pipeline.writable_frames()));
      continue;
    }
    calibration.chunk.record(step.staged - step.begun);
    calibration.engine.record(step.computed - step.begun);
    calibration.stages.record(step.staged - step.computed);
    spent += step.staged - step.begun;
    if (++chunks < burst_chunks) continue;
    const std::chrono::nanoseconds rest = std::max(burst_time - spent, spent);
    if (pipeline.clock().now() + rest < end) pipeline.clock().sleep(rest);
    chunks = 0;
    spent = std::chrono::nanoseconds(0);
  }
  for (;;) {
    const Pipeline::Step step = pipeline.drain();
    check(pipeline, step.status);
    if (step.frames_in == 0 && step.frames_out == 0) return calibration;
  }
}

ComputeTime telling_time(const Calibration& calibration) {
  const std::uint64_t chunks = calibration.chunk.count();
  if (chunks >= 1000) return time_at(calibration, "p99.9", 0.999);
  if (chunks >= 100) return time_at(calibration, "p99", 0.99);
  return time_at(calibration, "longest", 1);
}

ComputeTime median_time(const Calibration& calibration) { return time_at(calibration, kMedian, 0.5); }

LatencyTerm measured_term(const ComputeTime& time) {
  LatencyTerm term;
  term.place = "compute";
  term.part = LatencyPart::kWhole;
  term.kind = LatencyKind::kMeasured;
  term.time_alone = time.chunk;
  term.is_timed = true;
  term.key = {"model.file, model.backend"};
  term.note = quantile_text(time, time.chunk_p50);
  return term;
}

std::string quantile_text(const ComputeTime& time, std::chrono::nanoseconds p50) {
  return time.quantile + " of " + std::to_string(time.chunks) + (time.chunks == 1 ? " chunk" : " chunks") +
         (time.quantile == kMedian ? "" : ", p50 " + duration_text(p50));
}

}  // namespace halotap::pipeline
