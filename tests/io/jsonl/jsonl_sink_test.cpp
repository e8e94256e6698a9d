#include "jsonl/jsonl_sink.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "captured_output.hpp"
#include "expect_error.hpp"
#include "halotap/io/endpoint.hpp"
#include "halotap/pipeline/errors.hpp"
#include "scratch_folder.hpp"

namespace halotap::io {
namespace {

using pipeline::ConfigError;
using pipeline::DataError;
using test::ScratchFolder;

std::string written(const SinkSpec& spec, const std::vector<float>& samples) {
  const ScratchFolder folder;
  const auto sink = open_sink(folder.file("y.jsonl"), spec);
  const std::int64_t values = spec.streams * spec.channels;
  // In two parts: frames are counted on.
  const auto frames = static_cast<std::int64_t>(samples.size()) / values;
  sink->write(samples.data(), frames / 2);
  sink->write(samples.data() + frames / 2 * values, frames - frames / 2);
  sink->finish();
  return ScratchFolder::content(folder.file("y.jsonl"));
}

TEST(JsonlSink, WritesAnObjectAFrame) {
  SinkSpec spec;
  spec.channels = 2;
  spec.rate_hz = 16;
  EXPECT_EQ(written(spec, {1, 0.1f, -2, 1e-45f}),
            "{\"frame\": 0, \"time_s\": 0, \"values\": [1, 0.1]}\n"
            "{\"frame\": 1, \"time_s\": 0.0625, \"values\": [-2, 1e-45]}\n");
}

TEST(JsonlSink, LeavesOutATimeThatIsNotKnown) {
  SinkSpec spec;
  spec.channels = 1;
  EXPECT_EQ(written(spec, {1}), "{\"frame\": 0, \"values\": [1]}\n");
}

TEST(JsonlSink, StaysJsonForTimesThatNoNumberHolds) {
  SinkSpec spec;
  spec.channels = 1;
  spec.rate_hz = 1e-308;
  spec.has_events = true;
  const ScratchFolder folder;
  const auto sink = open_sink(folder.file("y.jsonl"), spec);
  const std::vector<float> samples(4);
  sink->write(samples.data(), 4);
  pipeline::StageEvent event;
  event.name = "on";
  event.time_s = INFINITY;
  sink->write_event(event);
  sink->finish();
  std::istringstream lines(ScratchFolder::content(folder.file("y.jsonl")));
  std::vector<nlohmann::json> objects;
  for (std::string line; std::getline(lines, line);) objects.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(objects.size(), 5u);
  EXPECT_TRUE(objects[3]["time_s"].is_null());
  EXPECT_TRUE(objects[4]["time_s"].is_null());
}

TEST(JsonlSink, MarksFramesThatWereHeld) {
  const ScratchFolder folder;
  SinkSpec spec;
  spec.channels = 1;
  const auto sink = open_sink(folder.file("y.jsonl"), spec);
  const std::vector<float> samples{5, 5};
  sink->write(samples.data(), 1);
  sink->write_held(samples.data(), 2);
  sink->write(samples.data(), 1);
  sink->finish();
  EXPECT_EQ(ScratchFolder::content(folder.file("y.jsonl")),
            "{\"frame\": 0, \"values\": [5]}\n"
            "{\"frame\": 1, \"held\": true, \"values\": [5]}\n"
            "{\"frame\": 2, \"held\": true, \"values\": [5]}\n"
            "{\"frame\": 3, \"values\": [5]}\n");
}

TEST(JsonlSink, NamesValuesAndNumbersStreams) {
  SinkSpec spec;
  spec.channels = 1;
  spec.streams = 2;
  spec.channel_names = {"say \"x\""};
  EXPECT_EQ(written(spec, {1, 2}),
            "{\"frame\": 0, \"stream\": 0, \"values\": {\"say \\\"x\\\"\": 1}}\n"
            "{\"frame\": 0, \"stream\": 1, \"values\": {\"say \\\"x\\\"\": 2}}\n");
}

TEST(JsonlSink, StaysJsonForEveryValueAndName) {
  SinkSpec spec;
  spec.channels = 4;
  spec.channel_names = {"a\n", "\xff", "c", "d"};
  std::istringstream lines(written(spec, {std::nanf(""), HUGE_VALF, -HUGE_VALF, 3e38f}));
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  const nlohmann::json object = nlohmann::json::parse(line);
  EXPECT_TRUE(object["values"]["a\n"].is_null());
  EXPECT_TRUE(object["values"]["c"].is_null());
  EXPECT_EQ(object["values"]["d"].get<float>(), 3e38f);
  EXPECT_EQ(object["values"].size(), 4u);
}

TEST(JsonlSink, WritesGapsWhicheverLinesAreAskedFor) {
  for (const std::string lines : {"all", "frames", "events"}) {
    const ScratchFolder folder;
    SinkSpec spec;
    spec.channels = 1;
    spec.has_events = true;
    const auto sink = open_sink(folder.file("y.jsonl") + "?lines=" + lines, spec);
    sink->write_gap({.gap = {.frames_lost = 7, .frames_dropped = 8, .is_reopening = true},
                     .at_frame = 5,
                     .action = pipeline::OnGap::kFill,
                     .frames_filled = 15,
                     .first_frame = 3,
                     .frames = 40});
    sink->write_gap({.gap = {.frames_lost = 1}, .first_frame = 60});
    sink->write_gap({.frames_skipped = 9, .first_frame = 70});
    sink->finish();
    EXPECT_EQ(ScratchFolder::content(folder.file("y.jsonl")),
              "{\"gap\": \"fill\", \"frame\": 3, \"frames\": 40, \"frames_lost\": 7, \"frames_dropped\": 8, "
              "\"frames_filled\": 15, \"frames_skipped\": 0, \"reopened\": true}\n"
              "{\"gap\": \"reset\", \"frame\": 60, \"frames\": 0, \"frames_lost\": 1, \"frames_dropped\": 0, "
              "\"frames_filled\": 0, \"frames_skipped\": 0, \"reopened\": false}\n"
              "{\"gap\": \"reset\", \"frame\": 70, \"frames\": 0, \"frames_lost\": 0, \"frames_dropped\": 0, "
              "\"frames_filled\": 0, \"frames_skipped\": 9, \"reopened\": false}\n");
  }
}

pipeline::StageEvent event_of(std::string_view name, std::int64_t frame, double time_s) {
  pipeline::StageEvent event;
  event.name = name;
  event.frame = frame;
  event.time_s = time_s;
  return event;
}

// Two frames, and between them an event.
std::string written_with_event(const std::string& options, SinkSpec spec, const pipeline::StageEvent& event) {
  const ScratchFolder folder;
  spec.channels = 1;
  spec.has_events = true;
  const auto sink = open_sink(folder.file("y.jsonl") + options, spec);
  const std::vector<float> samples(static_cast<std::size_t>(spec.streams), 1.0F);
  sink->write(samples.data(), 1);
  sink->write_event(event);
  sink->write(samples.data(), 1);
  sink->finish();
  return ScratchFolder::content(folder.file("y.jsonl"));
}

TEST(JsonlSink, WritesAnEventWhereItHappened) {
  pipeline::StageEvent event = event_of("on", 96, 0.002);
  event.channel_name = "say \"x\"";
  event.stage = 1;
  EXPECT_EQ(written_with_event("", {}, event),
            "{\"frame\": 0, \"values\": [1]}\n"
            "{\"event\": \"on\", \"channel\": \"say \\\"x\\\"\", \"frame\": 96, \"time_s\": 0.002, \"stage\": 1}\n"
            "{\"frame\": 1, \"values\": [1]}\n");
}

TEST(JsonlSink, NumbersTheStreamAndTheUnnamedChannelOfAnEvent) {
  pipeline::StageEvent event = event_of("off", 3, 1.5);
  event.stream = 1;
  event.channel = 7;
  SinkSpec spec;
  spec.streams = 2;
  EXPECT_EQ(written_with_event("?lines=events", spec, event),
            "{\"event\": \"off\", \"channel\": 7, \"frame\": 3, \"stream\": 1, \"time_s\": 1.5, \"stage\": 0}\n");
}

TEST(JsonlSink, WritesFramesOrEventsAloneWhenAsked) {
  const pipeline::StageEvent event = event_of("on", 0, 0);
  EXPECT_EQ(written_with_event("?lines=frames", {}, event),
            "{\"frame\": 0, \"values\": [1]}\n{\"frame\": 1, \"values\": [1]}\n");
  EXPECT_EQ(written_with_event("?lines=events", {}, event),
            "{\"event\": \"on\", \"channel\": 0, \"frame\": 0, \"time_s\": 0, \"stage\": 0}\n");
  EXPECT_EQ(written_with_event("?lines=all", {}, event), written_with_event("", {}, event));
}

TEST(JsonlSink, RefusesEventsAloneWhereThereAreNone) {
  SinkSpec spec;
  spec.channels = 1;
  expect_error<ConfigError>([&] { open_sink("jsonl://-?lines=events", spec); },
                            {"lines", "expected all or frames", "no stage makes events"});
  expect_error<ConfigError>([&] { open_sink("jsonl://-?lines=evnts", spec); },
                            {"lines", "expected all, frames or events", "'evnts'"});
}

TEST(JsonlSink, WritesToStandardOutputAsFramesCome) {
  SinkSpec spec;
  spec.channels = 1;
  const float sample = 1;
  CapturedOutput output;
  const auto sink = open_sink("jsonl://-", spec);
  sink->write(&sample, 1);
  EXPECT_EQ(output.take(), "{\"frame\": 0, \"values\": [1]}\n");
  sink->finish();
  EXPECT_EQ(output.take(), "");
}

TEST(JsonlSink, TellsOfAFullDisk) {
  SinkSpec spec;
  spec.channels = 1;
  const float sample = 1;
  const auto sink = open_sink("jsonl:///dev/full", spec);
  expect_error<DataError>([&] { sink->write(&sample, 1); }, {"/dev/full", "No space left on device"});
}

}  // namespace
}  // namespace halotap::io
