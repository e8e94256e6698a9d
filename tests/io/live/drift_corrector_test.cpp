#include "live/drift_corrector.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

namespace halotap::io {
namespace {

constexpr double kRateHz = 2000;
constexpr std::int64_t kBlock = 20;    // of both devices: 10 ms
constexpr std::int64_t kReserve = 80;  // 40 ms
constexpr std::int64_t kRing = 1000;   // 500 ms

// A source and a loudspeaker in simulated time, on two clocks. Of a frame one channel is its number by 10^4 and the
// other 1: their quotient, whatever the resampler's gain, tells how old is what is heard.
class Duplex {
 public:
  // The source's clock is `ppm` slower than the loudspeaker's.
  explicit Duplex(double ppm) : drift_(ppm * 1e-6) {}

  // Both go on for so long.
  void run(double seconds) {
    const double end_s = now_s_ + seconds;
    for (;;) {
      const double source_s = std::max(source_due_s_, session_stalled_until_s_);
      const double device_s = device_due_s_;
      if (std::min(source_s, device_s) >= end_s) break;
      source_s <= device_s ? write(source_s) : play(device_s);
    }
    now_s_ = end_s;
  }
  // The session writes nothing for so long, then all at once.
  void stall_session(double seconds) { session_stalled_until_s_ = now_s_ + seconds; }
  // The source loses the frames of so long.
  void lose(double seconds) {
    source_due_s_ += seconds;
    frames_made_ += std::llround(seconds * kRateHz);
  }
  // The loudspeaker does not call back for so long; `reopens`: it was lost and opened again.
  void stop_device(double seconds, bool reopens) {
    device_due_s_ = now_s_ + seconds;
    reopens_ = reopens;
  }
  void end() {
    corrector_.end();
    for (int block = 0; block < 100; ++block) play(device_due_s_);
  }

  DriftCounters drift() const { return corrector_.counters(); }
  PlaybackCounters played() const { return playback_->counters(); }
  // From when a frame was made until it is played: the last one.
  double age_s() const { return age_s_; }
  double oldest_s() const { return oldest_s_; }
  void forget_ages() { oldest_s_ = 0; }
  std::int64_t waiting_frames() const { return playback_->waiting_frames(); }
  double delay_s() const { return static_cast<double>(corrector_.delay_frames()) / kRateHz; }

 private:
  static std::int64_t ns(double seconds) { return std::llround(seconds * 1e9) + 1'000'000'000'000; }

  void write(double at_s) {
    std::vector<float> block;
    for (int i = 0; i < kBlock; ++i) block.insert(block.end(), {static_cast<float>(++frames_made_) * 1e-4F, 1.0F});
    corrector_.write(block.data(), kBlock, ns(at_s));
    source_due_s_ += kBlock / kRateHz * (1 + drift_);
  }
  void play(double at_s) {
    if (reopens_) playback_->on_reopen();
    reopens_ = false;
    std::vector<float> block(2 * kBlock, -1.0F);
    playback_->on_block(block.data(), kBlock, ns(at_s), false);
    if (block[1] > 0.99F) {  // neither silence nor the filter's ringing
      age_s_ = at_s - double{block[0]} / block[1] * 1e4 / kRateHz * (1 + drift_);
      oldest_s_ = std::max(oldest_s_, age_s_);
    }
    device_due_s_ += kBlock / kRateHz;
  }

  double drift_;
  std::shared_ptr<Playback> playback_ = std::make_shared<Playback>(2, kRing, kReserve);
  DriftCorrector corrector_{{.channels = 2, .rate_hz = kRateHz, .reserve_frames = kReserve}, playback_};
  double now_s_ = 0;
  double source_due_s_ = kBlock / kRateHz;
  double device_due_s_ = 0.003;
  double session_stalled_until_s_ = 0;
  bool reopens_ = false;
  std::int64_t frames_made_ = 0;
  double age_s_ = 0;
  double oldest_s_ = 0;
};

// What went in is played, dropped or discarded; the rest, by `slack`, waits.
void expect_conserved(const Duplex& duplex, double slack) {
  const DriftCounters drift = duplex.drift();
  const PlaybackCounters played = duplex.played();
  const double in =
      static_cast<double>(drift.frames_in + drift.frames_added) - static_cast<double>(drift.frames_removed);
  EXPECT_NEAR(in, static_cast<double>(played.frames_played + drift.frames_dropped + played.frames_discarded), slack);
}

TEST(DriftCorrector, PlaysEveryFrameAtAnyDriftOfRealClocks) {
  for (const double ppm : {-500.0, -100.0, 100.0, 500.0}) {
    Duplex duplex(ppm);
    duplex.run(120);
    duplex.forget_ages();
    for (int minute = 0; minute < 8; ++minute) {
      duplex.run(60);
      EXPECT_NEAR(duplex.drift().correction_ppm, ppm, 15) << ppm;
      EXPECT_NEAR(duplex.age_s(), kReserve / kRateHz + duplex.delay_s() + kBlock / kRateHz, 0.012) << ppm;
    }
    EXPECT_LT(duplex.oldest_s(), kReserve / kRateHz + duplex.delay_s() + 2 * kBlock / kRateHz + 0.01);
    duplex.end();
    EXPECT_EQ(duplex.played().underruns, 0U) << ppm;
    EXPECT_EQ(duplex.played().frames_discarded, 0U) << ppm;
    EXPECT_EQ(duplex.drift().frames_dropped, 0U) << ppm;
    EXPECT_NEAR(static_cast<double>(duplex.drift().frames_added) - static_cast<double>(duplex.drift().frames_removed),
                600 * kRateHz * ppm * 1e-6, 20)
        << ppm;
    expect_conserved(duplex, 0);
  }
}

TEST(DriftCorrector, IsBackAtItsReserveASecondAfterTheSessionHung) {
  Duplex duplex(50);
  duplex.run(200);
  duplex.stall_session(0.4);
  duplex.run(2);
  EXPECT_EQ(duplex.played().underruns, 1U);
  EXPECT_GT(duplex.played().frames_silent, 0.3 * kRateHz);
  EXPECT_GT(duplex.played().frames_discarded, 0.3 * kRateHz) << "what came late is not played";
  EXPECT_NEAR(duplex.drift().correction_ppm, 50, 200) << "and forgotten";
  duplex.forget_ages();
  duplex.run(60);
  EXPECT_LT(duplex.oldest_s(), 2 * kReserve / kRateHz + duplex.delay_s() + 2 * kBlock / kRateHz);
  EXPECT_EQ(duplex.played().underruns, 1U);
  EXPECT_NEAR(duplex.drift().correction_ppm, 50, 40) << "a hiccup says nothing of the clocks";
  duplex.end();
  expect_conserved(duplex, 0);
}

TEST(DriftCorrector, GoesOnBehindFramesThatTheSourceLost) {
  Duplex duplex(-50);
  duplex.run(200);
  duplex.lose(0.2);
  duplex.run(120);
  EXPECT_EQ(duplex.played().underruns, 1U);
  EXPECT_EQ(duplex.played().frames_discarded, 0U);
  EXPECT_NEAR(duplex.drift().correction_ppm, -50, 40);
  duplex.end();
  expect_conserved(duplex, 0);
}

TEST(DriftCorrector, ForgetsBehindAnUnderrunHowLittleWasThereBefore) {
  Duplex duplex(-50);
  duplex.run(200);
  duplex.lose(0.03);
  duplex.run(5);
  EXPECT_GT(duplex.drift().correction_ppm, 900) << "the reserve is to grow";
  EXPECT_EQ(duplex.played().underruns, 0U);
  duplex.lose(0.1);
  duplex.run(0.5);
  EXPECT_EQ(duplex.played().underruns, 1U);
  EXPECT_NEAR(duplex.drift().correction_ppm, -50, 300);
}

TEST(DriftCorrector, PlaysNothingStaleWhenTheLoudspeakerIsBack) {
  Duplex duplex(50);
  duplex.run(200);
  duplex.stop_device(3, true);
  duplex.run(2.9);
  EXPECT_EQ(duplex.waiting_frames(), kRing) << "nobody takes";
  EXPECT_GT(duplex.drift().frames_dropped, 2 * kRateHz);
  duplex.forget_ages();
  duplex.run(0.5);
  EXPECT_NEAR(duplex.drift().correction_ppm, 50, 100) << "a lost device says nothing of the clocks";
  duplex.run(60);
  EXPECT_LT(duplex.oldest_s(), kReserve / kRateHz + duplex.delay_s() + 3 * kBlock / kRateHz);
  EXPECT_NEAR(duplex.drift().correction_ppm, 50, 40);
  duplex.end();
  expect_conserved(duplex, 0);
}

TEST(DriftCorrector, ForgivesALoudspeakerThatHangsForAWhile) {
  for (const double seconds : {0.3, 2.5}) {
    Duplex duplex(0);
    duplex.run(100);
    duplex.stop_device(seconds, false);
    duplex.run(seconds + 4);
    EXPECT_EQ(duplex.played().underruns, 0U) << seconds;
    EXPECT_GT(duplex.played().frames_discarded, 0.2 * kRateHz) << "else all that follows is late by as much";
    EXPECT_LT(duplex.age_s(), 2 * kReserve / kRateHz + duplex.delay_s() + 2 * kBlock / kRateHz) << seconds;
    duplex.end();
    expect_conserved(duplex, 0);
  }
}

TEST(DriftCorrector, SaysThatTheClocksAreTooFarApart) {
  for (const double ppm : {-5000.0, 5000.0}) {
    Duplex duplex(ppm);
    duplex.run(200);
    EXPECT_EQ(duplex.drift().is_at_limit, 1U) << ppm;
    EXPECT_NEAR(duplex.drift().correction_ppm, std::copysign(1000, ppm), 1);
    EXPECT_GT(ppm < 0 ? duplex.played().frames_discarded : duplex.played().frames_silent, 0.3 * kRateHz) << ppm;
    duplex.end();
    expect_conserved(duplex, 0);
  }
}

}  // namespace
}  // namespace halotap::io
