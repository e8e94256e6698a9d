// A control loop that never waits for its network: every tick submits what the sensors said and takes the newest result
// that is there by the tick's end, or holds on to the last one.
//
//   async_loop MODEL.yaml [TICKS]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "halotap/pipeline/async_engine.hpp"

using namespace halotap::pipeline;

namespace {

// Stands for the sensor bus.
void read_sensors(int tick, const FrameView& frame) {
  for (std::int64_t c = 0; c < frame.channels; ++c) frame(c, 0) = static_cast<float>((tick * (c + 1)) % 7) - 3;
}

// Whether an output is too old to act on.
bool is_stale(const AsyncResult& result) { return result.age > std::chrono::milliseconds(20); }

int run(const char* file, int ticks) {
  const Model model = load_model(file);
  const auto tick_time = std::chrono::milliseconds(1);
  AsyncEngine engine(model, {.engine = {.max_streams = 1, .max_chunk_frames = 1}, .in_flight = 4});
  StreamId robot;
  if (engine.open(robot) != Status::kOk) return 3;

  int fresh = 0;
  int held = 0;
  int refused = 0;
  auto tick_end = monotonic_clock().now();
  for (int tick = 0; tick < ticks; ++tick) {
    tick_end += tick_time;
    FrameView frame;
    if (engine.begin_chunk(robot, 1, frame) == Status::kOk) {
      read_sensors(tick, frame);
      if (engine.submit(robot, tick_end) != Status::kOk) return 3;
    } else {
      ++refused;  // four ticks without a result: the frame is lost, and the loop knows it
    }
    AsyncResult result;
    const Status status = engine.try_collect(robot, tick_end, result);
    if (status == Status::kDeviceFailed) return 3;
    if (status == Status::kOk && result.fresh) {
      ++fresh;
    } else if (result.output.frames > 0 && !is_stale(result)) {
      ++held;
    }
    // act on result.output(channel, result.output.frames - 1)
    const auto left = tick_end - monotonic_clock().now();
    if (left.count() > 0) monotonic_clock().sleep(left);
  }
  if (engine.close(robot) != Status::kOk) return 3;
  std::printf("%d ticks: %d fresh results, %d held, %d frames refused, %llu chunks late\n", ticks, fresh, held, refused,
              static_cast<unsigned long long>(engine.counters().chunks_late));
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) {
    std::fprintf(stderr, "async_loop MODEL.yaml [TICKS]\n");
    return 2;
  }
  try {
    return run(words[1], count > 2 ? std::atoi(words[2]) : 1000);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "async_loop: %s\n", error.what());
    return 2;
  }
}
