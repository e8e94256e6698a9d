#include "halotap/pipeline/ledger.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "random_stack.hpp"

namespace halotap::pipeline {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using test::draw;
using test::Random;

constexpr double kRateHz = 48000;

LatencyTerm frames_term(const std::string& place, std::int64_t frames, LatencyKey key = {},
                        LatencyKind kind = LatencyKind::kAlgorithmic) {
  LatencyTerm term;
  term.place = place;
  term.kind = kind;
  term.frames = frames;
  term.rate_hz = kRateHz;
  term.key = std::move(key);
  return term;
}

LatencyTerm chunk_of(std::int64_t frames) { return frames_term("chunk", frames - 1, {"chunk_frames", 1, 1}); }

LatencyTerm buffer_of(std::chrono::duration<double> time, const std::string& key = {}) {
  LatencyTerm term;
  term.place = "buffer";
  term.kind = LatencyKind::kBuffering;
  term.time_alone = time;
  term.key = {key};
  return term;
}

// In the middle half as long.
ComputeTime taking(std::chrono::nanoseconds time) {
  return {"p99.9", 1204, time, time * 3 / 4, time / 2, time / 2, time * 3 / 8, time / 4};
}

LatencyLedger ledger_of(const std::vector<LatencyTerm>& terms) {
  LatencyLedger ledger(kRateHz);
  ledger.add(terms);
  return ledger;
}

std::vector<Misfit> against(double budget_ms, const LatencyLedger& ledger) {
  LatencyConfig config;
  config.budget_ms = budget_ms;
  return misfits(ledger, config, 1, std::nullopt);
}

TEST(LatencyLedger, AddsUpEachKindByItself) {
  LatencyLedger ledger = ledger_of({chunk_of(49), frames_term("lookahead", 24), buffer_of(milliseconds(3))});
  ledger.add(measured_term(taking(microseconds(250))));
  EXPECT_DOUBLE_EQ(ledger.total(LatencyKind::kAlgorithmic).count(), 0.0015);
  EXPECT_DOUBLE_EQ(ledger.total(LatencyKind::kBuffering).count(), 0.003);
  EXPECT_DOUBLE_EQ(ledger.total(LatencyKind::kMeasured).count(), 0.00025);
  EXPECT_DOUBLE_EQ(ledger.total().count(), 0.00475);
  EXPECT_EQ(ledger.frames(LatencyKind::kAlgorithmic), 72);
  EXPECT_EQ(ledger.frames(LatencyKind::kBuffering), 144);
}

TEST(LatencyLedger, CountsFramesOfAnotherRateInItsOwn) {
  LatencyLedger ledger(kRateHz);
  LatencyTerm device = frames_term("device", 441, {}, LatencyKind::kBuffering);
  device.rate_hz = 44100;
  device.part = LatencyPart::kSource;
  ledger.add(device);
  ledger.add(frames_term("fifo", 7, {}, LatencyKind::kBuffering));
  EXPECT_EQ(ledger.frames(LatencyKind::kBuffering), 487);
  EXPECT_EQ(ledger.frames(LatencyKind::kBuffering, LatencyPart::kSource), 480);
  EXPECT_EQ(ledger.frames(LatencyKind::kBuffering, LatencyPart::kSinks), 0);
}

TEST(LatencyLedger, LeadsToTheKeysOfTheTermsThatHaveOne) {
  LatencyLedger ledger(kRateHz);
  ledger.add({frames_term("device", 1, {"uri's block", 0, 1}), frames_term("ring", 1)}, "source.");
  EXPECT_EQ(ledger.terms()[0].key.name, "source.uri's block");
  EXPECT_EQ(ledger.terms()[0].key.per_step, 1);
  EXPECT_EQ(ledger.terms()[1].key.name, "");
}

TEST(Misfits, AreNoneWithinTheBudgetToItsLastFrame) {
  EXPECT_TRUE(against(2, ledger_of({chunk_of(97)})).empty());
  EXPECT_EQ(against(2, ledger_of({chunk_of(98)})).size(), 1U);
  EXPECT_TRUE(against(0.3, ledger_of({buffer_of(microseconds(100)), buffer_of(microseconds(200))})).empty());
  EXPECT_TRUE(misfits(ledger_of({chunk_of(48000)}), {}, 48000, std::nullopt).empty()) << "without a budget";
}

TEST(Misfits, NameATermThatIsTooLongAlone) {
  const std::vector<Misfit> found = against(2, ledger_of({frames_term("lookahead", 1, {"model.file"}), chunk_of(241)}));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].text, "does not fit 2 ms: chunk alone is 5 ms; chunk_frames: at most 96");
  EXPECT_EQ(found[0].place, "chunk");
  EXPECT_EQ(found[0].key, "chunk_frames");
  EXPECT_EQ(found[0].at_most, 96);
}

TEST(Misfits, NameTheLongestTermAndEveryKeyThatIsEnoughLongestFirst) {
  const LatencyKey window{"stages.0.window_ms", 1e3 / kRateHz, 1e3 / kRateHz};
  const std::vector<Misfit> found =
      against(8, ledger_of({chunk_of(145), frames_term("stage 0 (rms)", 191, window), buffer_of(milliseconds(2))}));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].text,
            "does not fit 8 ms: 8.979 ms in all, of which stage 0 (rms) is 3.979 ms; stages.0.window_ms: at most 3.02, "
            "or chunk_frames: at most 98");
  EXPECT_EQ(found[0].key, "stages.0.window_ms");
}

TEST(Misfits, ListTheKeysLongestFirstWhereNoneIsEnoughByItself) {
  const std::vector<Misfit> found =
      against(1, ledger_of({chunk_of(97), buffer_of(milliseconds(5), "source.uri's block and latency")}));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].text,
            "does not fit 1 ms: buffer alone is 5 ms; no key is enough by itself: source.uri's block and latency "
            "(buffer, 5 ms), chunk_frames (chunk, 2 ms)");
  EXPECT_EQ(found[0].key, "source.uri's block and latency");
  EXPECT_FALSE(found[0].at_most);
}

// What a device makes of its options is not known beforehand; how long it may take is.
TEST(Misfits, SayHowLongATermMayBeWhoseKeyTellsNoValue) {
  const std::vector<Misfit> found =
      against(6, ledger_of({chunk_of(97), buffer_of(milliseconds(5), "source.uri's block and latency")}));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].text,
            "does not fit 6 ms: 7 ms in all, of which buffer is 5 ms; source.uri's block and latency: at most 4 ms for "
            "buffer, or chunk_frames: at most 49");
  EXPECT_EQ(found[0].key, "source.uri's block and latency");
  EXPECT_FALSE(found[0].at_most);
}

// With a shorter window of an rms, 1 frame of a threshold behind it is shorter, and more of them make up its times.
TEST(Misfits, GiveNoValueOfAKeyThatChangesOtherTermsToo) {
  LatencyTerm rms = frames_term("stage 1 (rms)", 479, {"stages.1.window_ms", 1e3 / kRateHz, 1e3 / kRateHz});
  rms.part = LatencyPart::kStages;
  rms.sets_rate = true;
  LatencyTerm log = frames_term("stage 2 (log)", 0);
  log.part = LatencyPart::kStages;
  const std::string with_value = "stages.1.window_ms: at most 6";
  EXPECT_NE(against(10.98, ledger_of({chunk_of(240), rms, log}))[0].text.find(with_value), std::string::npos);
  for (const std::int64_t frames : {0, 1440}) {
    LatencyTerm threshold = frames_term("stage 3 (threshold)", frames, {"stages.3.min_on_ms", 10, 10, 480});
    threshold.part = LatencyPart::kStages;
    const LatencyLedger ledger = ledger_of({chunk_of(240), rms, log, threshold});
    const double wait_ms = static_cast<double>(frames) / kRateHz * 1e3;
    const std::vector<Misfit> found = against(10.98 + wait_ms, ledger);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].text.find("window_ms"), std::string::npos) << found[0].text;
    EXPECT_NE(found[0].text.find("chunk_frames: at most 49"), std::string::npos) << found[0].text;
  }
  EXPECT_EQ(
      against(4, ledger_of({chunk_of(240), rms, frames_term("device", 1)}))[0].text,
      "does not fit 4 ms: stage 1 (rms) alone is 9.979 ms; no key is enough by itself: stages.1.window_ms (stage 1 "
      "(rms), 9.979 ms), chunk_frames (chunk, 4.979 ms)");
  LatencyTerm device = frames_term("device", 1);
  device.part = LatencyPart::kSinks;
  EXPECT_EQ(against(4, ledger_of({chunk_of(240), rms, device}))[0].text,
            "does not fit 4 ms: stage 1 (rms) alone is 9.979 ms; no key is known to be enough by itself: "
            "stages.1.window_ms (stage 1 (rms), 9.979 ms), chunk_frames (chunk, 4.979 ms)");
}

TEST(Misfits, SayWhereNoKeyChangesAnything) {
  const std::vector<Misfit> found = against(1, ledger_of({chunk_of(1), buffer_of(milliseconds(5))}));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].text, "does not fit 1 ms: buffer alone is 5 ms; no key changes that");
  EXPECT_EQ(found[0].key, "");
}

// Computing for longer than a chunk takes to arrive is never made good by a budget.
TEST(Misfits, SayThatAChunkIsComputedMoreSlowlyThanItArrives) {
  LatencyLedger ledger = ledger_of({chunk_of(240)});
  ledger.add(measured_term(taking(microseconds(5000))));
  for (const std::optional<double> budget_ms : {std::optional<double>(), std::optional<double>(1000)}) {
    LatencyConfig config;
    config.budget_ms = budget_ms;
    const std::vector<Misfit> found = misfits(ledger, config, 240, taking(microseconds(5000)));
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(
        found[0].text,
        "cannot keep up: a chunk of 240 frames takes 5 ms (p99.9 of 1204 chunks, p50 2.5 ms), and arrives in 5 ms; "
        "model.file, model.backend, or a longer chunk where short ones cost more a frame");
    EXPECT_EQ(found[0].place, "compute");
  }
  EXPECT_TRUE(misfits(ledger, {}, 240, taking(microseconds(4999))).empty());
  EXPECT_TRUE(misfits(ledger, {}, 241, taking(microseconds(5000))).empty());
}

TEST(Misfits, CountWhatIsMeasuredTowardsTheBudget) {
  LatencyLedger ledger = ledger_of({chunk_of(241)});
  EXPECT_TRUE(against(5.5, ledger).empty());
  ledger.add(measured_term(taking(microseconds(501))));
  LatencyConfig config;
  config.budget_ms = 5.5;
  const std::vector<Misfit> found = misfits(ledger, config, 241, taking(microseconds(501)));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].text,
            "does not fit 5.5 ms: 5.501 ms in all, of which chunk is 5 ms; chunk_frames: at most 240, or model.file, "
            "model.backend: at most 0.5 ms for compute");
}

TEST(Misfits, HoldThePartsOfTheWayToTheirBudgets) {
  LatencyTerm device = frames_term("device", 480, {"uri's block", 0, 1}, LatencyKind::kBuffering);
  LatencyTerm ring = buffer_of(microseconds(1250));
  ring.is_timed = true;
  device.part = ring.part = LatencyPart::kSource;
  LatencyLedger ledger = ledger_of({device, ring, chunk_of(240)});
  ledger.add(measured_term(taking(microseconds(1000))));
  const auto texts = [&ledger](const PartBudgets& budgets) {
    LatencyConfig config;
    config.budget_ms = 100;
    config.budgets = budgets;
    std::vector<std::string> found;
    for (const Misfit& misfit : misfits(ledger, config, 240, taking(microseconds(1000)))) found.push_back(misfit.text);
    return found;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(texts({.source_ms = 1.25, .engine_ms = 0.75, .stages_ms = 0.5, .sinks_ms = 0.001}), Texts{});
  EXPECT_EQ(
      texts({.source_ms = 1.24, .engine_ms = 0.74, .stages_ms = 0.49, .sinks_ms = std::nullopt}),
      (Texts{
          "latency.budgets_ms.source: does not fit 1.24 ms: buffer alone is 1.25 ms; no key changes that",
          "latency.budgets_ms.engine: does not fit 0.74 ms: a chunk takes 0.75 ms (p99.9 of 1204 chunks, p50 375 us); "
          "model.file, model.backend",
          "latency.budgets_ms.stages: does not fit 0.49 ms: a chunk takes 0.5 ms (p99.9 of 1204 chunks, p50 250 us); "
          "stages"}));
}

TEST(LatencyLedger, LeavesOfABudgetWhatARunsOwnMeasureSees) {
  LatencyTerm ring = buffer_of(milliseconds(2));
  ring.is_timed = true;
  LatencyLedger ledger = ledger_of({chunk_of(49), buffer_of(milliseconds(3)), ring});
  ledger.add(measured_term(taking(milliseconds(7))));
  EXPECT_DOUBLE_EQ(ledger.timed_budget_ms(20), 16);
  EXPECT_DOUBLE_EQ(ledger.timed_budget_ms(3), 0);
}

// The value that is proposed fits, and the next one does not, whatever the terms are.
TEST(Misfits, ProposeTheGreatestValueThatFits) {
  Random random(5);
  int proposed = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t step_frames = draw(random, 1, 7);
    const auto at_zero = static_cast<double>(draw(random, 0, 3));
    const auto per_step = static_cast<double>(draw(random, 1, 4));
    const std::int64_t steps = draw(random, 0, 300);
    const auto with = [&](double value) {
      const double steps_for = std::ceil((value - at_zero) / per_step);
      return ledger_of({frames_term("changed", static_cast<std::int64_t>(steps_for) * step_frames,
                                    {"key", at_zero, per_step, step_frames}),
                        chunk_of(1), buffer_of(microseconds(1250))});
    };
    const double budget_ms = static_cast<double>(draw(random, 1, 4000)) / 100;
    const std::vector<Misfit> found = against(budget_ms, with(at_zero + per_step * static_cast<double>(steps)));
    if (found.empty() || !found[0].at_most) continue;
    ++proposed;
    EXPECT_GT(*found[0].at_most, 0);
    EXPECT_TRUE(against(budget_ms, with(*found[0].at_most)).empty()) << found[0].text;
    EXPECT_FALSE(against(budget_ms, with(*found[0].at_most + per_step)).empty()) << found[0].text;
  }
  EXPECT_GT(proposed, 100);
}

}  // namespace
}  // namespace halotap::pipeline
