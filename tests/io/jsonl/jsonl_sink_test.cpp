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
