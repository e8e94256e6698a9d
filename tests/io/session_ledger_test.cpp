#include "halotap/io/session_ledger.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "halotap/pipeline/built_in_stages.hpp"
#include "random_stack.hpp"

namespace halotap::io {
namespace {

using pipeline::LatencyKind;
using pipeline::LatencyLedger;
using pipeline::LatencyPart;
using pipeline::LatencyTerm;

// `channels` in and out, with taps to look ahead for when `lookahead_frames` is above 0.
pipeline::Model model_of(std::int64_t channels, double rate_hz, std::int64_t lookahead_frames = 0) {
  test::Random random(1);
  kernels::LayerSpec spec;
  spec.name = "layer";
  spec.in_channels = spec.out_channels = channels;
  spec.kernel_size = 2 * lookahead_frames + 1;
  spec.padding = kernels::Padding::kSame;
  pipeline::Model model;
  model.name = "test";
  model.frame_rate_hz = rate_hz;
  model.stack = std::make_shared<kernels::Stack>(std::vector<kernels::Layer>{test::draw_layer(random, spec)});
  return model;
}

pipeline::Pipeline pipeline_of(const pipeline::Model& model, std::int64_t chunk_frames,
                               std::vector<pipeline::StageEntry> stages = {}) {
  pipeline::PipelineSpec spec;
  spec.backend = pipeline::Backend::kCpu;
  spec.chunks.max_frames = chunk_frames;
  spec.stages = std::move(stages);
  return {model, spec};
}

LatencyTerm held(const std::string& place, std::int64_t frames, double rate_hz) {
  LatencyTerm term;
  term.place = place;
  term.kind = LatencyKind::kBuffering;
  term.frames = frames;
  term.rate_hz = rate_hz;
  term.key = {"uri's block", 0, 1};
  return term;
}

SourceInfo source_of(const pipeline::Model& model, std::vector<LatencyTerm> latency = {}) {
  SourceInfo info;
  info.channels = model.stack->in_channels();
  info.rate_hz = model.frame_rate_hz;
  info.is_live = !latency.empty();
  info.latency = std::move(latency);
  return info;
}

class HoldingSink final : public Sink {
 public:
  explicit HoldingSink(std::vector<LatencyTerm> latency) : latency_(std::move(latency)) {}
  void write(const float*, std::int64_t) override {}
  std::vector<LatencyTerm> latency() const override { return latency_; }
  void finish() override {}

 private:
  std::vector<LatencyTerm> latency_;
};

std::vector<std::string> texts_of(const LatencyLedger& ledger) {
  std::vector<std::string> texts;
  for (const LatencyTerm& term : ledger.terms()) {
    texts.push_back(std::string(to_string(term.part)) + ": " + term.place + ", " + std::string(to_string(term.kind)) +
                    ", " + std::to_string(term.frames) + " by " + term.key.name);
  }
  return texts;
}

using Texts = std::vector<std::string>;

TEST(SessionLedger, HasEveryTermInTheOrderInWhichAFrameMeetsThem) {
  const pipeline::Model model = model_of(2, 1000, 3);
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(nullptr);
  sinks.push_back(std::make_unique<HoldingSink>(std::vector<LatencyTerm>{held("playback", 50, 100)}));
  const LatencyLedger ledger =
      session_ledger(source_of(model, {held("device", 48, 4000)}),
                     pipeline_of(model, 16,
                                 {{"select", pipeline::select_stage({.channels = {"0"}})},
                                  {"decimate", pipeline::decimate_stage({.factor = 10})},
                                  {"threshold", pipeline::threshold_stage({.on = 0, .min_on_ms = 30})}}),
                     sinks, false);
  EXPECT_EQ(
      texts_of(ledger),
      (Texts{"source: device, buffering, 48 by source.uri's block", "engine: chunk, algorithmic, 15 by chunk_frames",
             "engine: lookahead, algorithmic, 3 by model.file", "stages: stage 0 (select), algorithmic, 0 by ",
             "stages: stage 1 (decimate), algorithmic, 9 by stages.1.factor",
             "stages: stage 2 (threshold), algorithmic, 20 by stages.2.min_on_ms",
             "sinks: sink 1 (playback), buffering, 50 by sinks.1.uri's block"}));
  EXPECT_EQ(ledger.frames(LatencyKind::kAlgorithmic), 15 + 3 + 9 + 20);
  EXPECT_DOUBLE_EQ(ledger.total(LatencyKind::kBuffering).count(), 0.012 + 0.5);
}

TEST(SessionLedger, CountsTheBlocksInWhichAPacedRecordingIsRead) {
  const auto first_term = [](double rate_hz, bool paced) {
    const pipeline::Model model = model_of(1, rate_hz);
    return texts_of(session_ledger(source_of(model), pipeline_of(model, 1), {}, paced)).front();
  };
  EXPECT_EQ(first_term(48000, true), "source: source, buffering, 47 by ");
  EXPECT_EQ(first_term(200, true), "source: source, buffering, 0 by ");
  EXPECT_EQ(first_term(48000, false), "engine: chunk, algorithmic, 0 by chunk_frames");
}

TEST(SessionLedger, CountsTheSlowestOfSinksThatWaitSideBySide) {
  const pipeline::Model model = model_of(1, 1000);
  std::vector<std::unique_ptr<Sink>> sinks;
  for (const std::int64_t frames : {20, 70, 50}) {
    sinks.push_back(std::make_unique<HoldingSink>(
        std::vector<LatencyTerm>{held("playback", frames, 1000), held("device", 5, 1000)}));
  }
  const LatencyLedger ledger = session_ledger(source_of(model), pipeline_of(model, 1), sinks, false);
  EXPECT_EQ(ledger.frames(LatencyKind::kBuffering), 75);
  EXPECT_EQ(texts_of(ledger).back(), "sinks: sink 1 (device), buffering, 5 by sinks.1.uri's block");
}

TEST(SessionLedger, HoldsForThirtyTwoChannelsAt96KilohertzAndEveryBlockSize) {
  const pipeline::Model model = model_of(32, 96000, 2);
  for (const std::int64_t block_frames : {1, 17, 4096}) {
    for (const std::int64_t chunk_frames : {1, 17, 4096}) {
      const LatencyLedger ledger = session_ledger(source_of(model, {held("device", block_frames, 96000)}),
                                                  pipeline_of(model, chunk_frames), {}, false);
      EXPECT_EQ(ledger.frames(LatencyKind::kBuffering), block_frames);
      EXPECT_EQ(ledger.frames(LatencyKind::kAlgorithmic), chunk_frames - 1 + 2);
      EXPECT_DOUBLE_EQ(ledger.total().count(), static_cast<double>(block_frames + chunk_frames + 1) / 96000);
    }
  }
}

}  // namespace
}  // namespace halotap::io
