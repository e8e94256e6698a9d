#include "csv/csv_sink.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <utility>

#include "captured_output.hpp"
#include "expect_error.hpp"
#include "halotap/io/endpoint.hpp"
#include "halotap/pipeline/errors.hpp"
#include "read_all.hpp"
#include "scratch_folder.hpp"

namespace halotap::io {
namespace {

using pipeline::ConfigError;
using pipeline::DataError;
using test::ScratchFolder;

SinkSpec spec_of(std::int64_t channels, std::vector<std::string> names = {}) {
  SinkSpec spec;
  spec.channels = channels;
  spec.channel_names = std::move(names);
  return spec;
}

std::string written(const SinkSpec& spec, const std::vector<float>& samples, const std::string& options = "") {
  const ScratchFolder folder;
  const auto sink = open_sink(folder.file("y.csv") + options, spec);
  sink->write(samples.data(), static_cast<std::int64_t>(samples.size()) / spec.channels);
  sink->finish();
  return ScratchFolder::content(folder.file("y.csv"));
}

TEST(CsvSink, WritesAFrameARow) {
  EXPECT_EQ(written(spec_of(2), {0.1f, -2, 1e-45f, 1e10f}), "0.1,-2\n1e-45,1e+10\n");
  EXPECT_EQ(written(spec_of(2, {"a", "b"}), {1, 2}), "a,b\n1,2\n");
  EXPECT_EQ(written(spec_of(2, {"a", "b"}), {1, 2}, "?delimiter=tab"), "a\tb\n1\t2\n");
  EXPECT_EQ(written(spec_of(1), {}), "");
}

TEST(CsvSink, WritesNanAndInf) {
  EXPECT_EQ(written(spec_of(4), {std::nanf(""), -std::nanf(""), HUGE_VALF, -HUGE_VALF}), "nan,nan,inf,-inf\n");
}

TEST(CsvSink, WritesNamesThatReadBack) {
  const std::vector<std::string> names = {"a,b", "say \"x\"", "1", " c ", "nan", "d;e"};
  const ScratchFolder folder;
  for (const std::string options : {"", "?delimiter=;", "?delimiter=tab"}) {
    const auto sink = open_sink(folder.file("y.csv") + options, spec_of(6, names));
    sink->finish();
    EXPECT_EQ(open_source(folder.file("y.csv") + options, {})->info().channel_names, names);
  }
}

TEST(CsvSink, KeepsEveryBitOfFiniteFloats) {
  const ScratchFolder folder;
  std::mt19937 random(1);
  std::vector<float> samples;
  while (samples.size() < 30'000) {
    const std::uint32_t bits = random();
    float sample;
    std::memcpy(&sample, &bits, sizeof sample);
    if (std::isfinite(sample)) samples.push_back(sample);
  }
  const auto sink = open_sink(folder.file("y.csv"), spec_of(3));
  sink->write(samples.data(), 4000);
  sink->write(samples.data() + 12'000, 6000);
  sink->finish();
  const std::vector<float> back = read_all(*open_source(folder.file("y.csv"), {}), 1000);
  ASSERT_EQ(back.size(), samples.size());
  EXPECT_EQ(std::memcmp(back.data(), samples.data(), back.size() * sizeof(float)), 0);
}

TEST(CsvSink, WritesToStandardOutputAsFramesCome) {
  const float sample = 0.5f;
  CapturedOutput output;
  const auto sink = open_sink("csv://-", spec_of(1));
  sink->write(&sample, 1);
  EXPECT_EQ(output.take(), "0.5\n");
  sink->finish();
  EXPECT_EQ(output.take(), "");
}

TEST(CsvSink, RefusesSeveralStreams) {
  SinkSpec spec = spec_of(1);
  spec.streams = 2;
  const ScratchFolder folder;
  expect_error<ConfigError>([&] { open_sink(folder.file("y.csv"), spec); }, {"1 stream, got 2", ".npy"});
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(CsvSink, TellsOfAFullDisk) {
  const float sample = 1;
  const auto sink = open_sink("csv:///dev/full", spec_of(1));
  expect_error<DataError>([&] { sink->write(&sample, 1); }, {"/dev/full", "No space left on device"});
}

}  // namespace
}  // namespace halotap::io
