// What a sound device's thread calls, and the session behind it where gaps and invalid samples come.
#include <gtest/gtest.h>
#include <pthread.h>
#include <semaphore.h>

#include <array>
#include <atomic>
#include <cmath>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "halotap/io/session.hpp"
#include "halotap/pipeline/built_in_stages.hpp"
#include "live/capture.hpp"
#include "live/playback.hpp"
#include "pipeline/allocation_counter.hpp"
#include "pipeline/lock_counter.hpp"
#include "session/session_parts.hpp"

namespace halotap::io {
namespace {

using namespace std::chrono_literals;
using pipeline::OnGap;
using pipeline::OnInvalid;

template <typename Body>
std::uint64_t locks_of(Body body) {
  const std::uint64_t before = test::lock_calls();
  body();
  return test::lock_calls() - before;
}

TEST(LockCounter, CatchesEveryKindOfLock) {
  std::mutex mutex;
  EXPECT_EQ(locks_of([&] { const std::lock_guard lock(mutex); }), 1u);
  EXPECT_EQ(locks_of([&] {
              if (mutex.try_lock()) mutex.unlock();
            }),
            1u);
  std::timed_mutex timed;
  EXPECT_EQ(locks_of([&] {
              if (timed.try_lock_for(1s)) timed.unlock();
            }),
            1u);
  std::shared_mutex shared;
  EXPECT_EQ(locks_of([&] { const std::shared_lock lock(shared); }), 1u);
  EXPECT_EQ(locks_of([&] { const std::unique_lock lock(shared); }), 1u);
  pthread_spinlock_t spin;
  pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
  EXPECT_EQ(locks_of([&] {
              pthread_spin_lock(&spin);
              pthread_spin_unlock(&spin);
            }),
            1u);
  sem_t semaphore;
  sem_init(&semaphore, 0, 1);
  EXPECT_EQ(locks_of([&] { sem_wait(&semaphore); }), 1u);
  EXPECT_EQ(locks_of([] {}), 0u);
}

// Counts the calls of this thread while it lives.
struct Calls {
  std::uint64_t allocations = test::allocator_calls();
  std::uint64_t locks = test::lock_calls();

  void end() {
    allocations = test::allocator_calls() - allocations;
    locks = test::lock_calls() - locks;
  }
};

TEST(Capture, NeitherAllocatesNorLocksInItsCallback) {
  Capture capture(2, 48000, 2000);
  const std::vector<float> block(2 * 480, 0.5F);
  std::vector<float> room(2 * 480);
  std::int64_t now_ns = 1'000'000'000;
  Gap missing;
  Calls calls;
  for (int i = 0; i < 2000; ++i) {
    now_ns += i % 400 == 399 ? 250'000'000 : 10'000'000;  // now and then frames go missing
    capture.on_block(block.data(), i % 97 == 0 ? 0 : 480, now_ns, i % 50 == 0);
    if (i % 300 < 290) capture.read(room.data(), 480);  // or the ring runs over
    missing += capture.take_gap();
    if (i % 700 == 699) capture.on_reopen();
  }
  calls.end();
  EXPECT_EQ(calls.allocations, 0u);
  EXPECT_EQ(calls.locks, 0u);
  EXPECT_GT(missing.frames_lost, 0);
  EXPECT_GT(missing.frames_dropped, 0);
  EXPECT_TRUE(missing.is_reopening);
}

TEST(Playback, NeitherAllocatesNorLocksInItsCallback) {
  for (const std::optional<std::int64_t> reserve_frames : {std::optional<std::int64_t>(), {960}}) {
    Playback playback(2, 2000, reserve_frames);
    std::vector<float> block(2 * 480, 0.5F);
    Calls calls;
    for (int i = 0; i < 2000; ++i) {
      if (i % 100 < 90) playback.write(block.data(), 480);
      if (i % 300 == 299) playback.discard(100);
      if (i % 700 == 699) playback.on_reopen();
      playback.on_block(block.data(), 480, i * std::int64_t{10'000'000}, i % 50 == 0);
    }
    playback.end();
    playback.on_block(block.data(), 480, 20'000'000'000, false);
    calls.end();
    EXPECT_EQ(calls.allocations, 0u);
    EXPECT_EQ(calls.locks, 0u);
    EXPECT_GT(playback.counters().frames_silent, 0u);
  }
}

// A device that loses frames and delivers what is no sample, as fast as it is read.
class TroubledSource final : public Source {
 public:
  TroubledSource() {
    info_.channels = 1;
    info_.rate_hz = 48000;
    info_.is_live = true;
    block_.fill(0.5F);
    block_[100] = NAN;
    block_[200] = 3e38F;
  }

  const SourceInfo& info() const override { return info_; }
  using Source::read;
  std::int64_t read(float* samples, std::int64_t frames) override {
    if (++blocks_ == kFirstBlock) calls_ = {};
    if (blocks_ == kLastBlock) {
      calls_.end();
      ended_ = true;
    }
    now_ns_ += blocks_ % 60 == 59 ? 80'000'000 : 10'000'000;
    capture_.on_block(block_.data(), 480, now_ns_, false);
    return capture_.read(samples, frames);
  }
  Gap take_gap() override { return capture_.take_gap(); }

  // Of the session, from one block to the last.
  const Calls& calls() const { return calls_; }
  const std::atomic<bool>* ended() const { return &ended_; }

 private:
  static constexpr int kFirstBlock = 100;
  static constexpr int kLastBlock = 400;

  SourceInfo info_;
  std::array<float, 480> block_{};
  Capture capture_{1, 48000, 4800};
  std::int64_t now_ns_ = 1'000'000'000;
  int blocks_ = 0;
  Calls calls_;
  std::atomic<bool> ended_{false};
};

class CountingSink final : public Sink {
 public:
  void write(const float*, std::int64_t frames) override { frames_ += frames; }
  void write_gap(const HandledGap&) override { ++gaps_; }
  void finish() override {}

  std::int64_t frames_ = 0;
  std::int64_t gaps_ = 0;
};

TEST(Session, NeitherAllocatesNorLocksWhereGapsAndInvalidSamplesCome) {
  for (const OnGap on_gap : {OnGap::kReset, OnGap::kMark, OnGap::kFill}) {
    for (const OnInvalid on_invalid : {OnInvalid::kPass, OnInvalid::kHold, OnInvalid::kZero}) {
      TroubledSource source;
      pipeline::PipelineSpec pipeline_spec = io::pipeline_spec(64);
      pipeline_spec.stages = {{"decimate", pipeline::decimate_stage({.factor = 3})}};
      pipeline::Pipeline pipeline(look_ahead_model(1), pipeline_spec);
      std::vector<std::unique_ptr<Sink>> sinks;
      sinks.push_back(std::make_unique<CountingSink>());
      const auto& sink = static_cast<const CountingSink&>(*sinks.front());
      SessionSpec spec;
      spec.input = {on_gap, on_invalid};
      spec.max_fill_frames = 24000;
      spec.stop = source.ended();
      const SessionReport report = run_session(source, pipeline, sinks, spec);
      EXPECT_EQ(source.calls().allocations, 0u) << to_string(on_gap) << " " << to_string(on_invalid);
      EXPECT_EQ(source.calls().locks, 0u) << to_string(on_gap) << " " << to_string(on_invalid);
      EXPECT_GT(sink.gaps_, 4);
      EXPECT_GT(report.invalid.nan, 300u);
      EXPECT_EQ(report.frames_filled > 0, on_gap == OnGap::kFill);
      EXPECT_EQ(sink.frames_, report.frames_out);
    }
  }
}

}  // namespace
}  // namespace halotap::io
