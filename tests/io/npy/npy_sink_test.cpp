#include "npy/npy_sink.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <random>

#include "expect_error.hpp"
#include "halotap/io/endpoint.hpp"
#include "halotap/pipeline/errors.hpp"
#include "npy/npy_bytes.hpp"
#include "read_all.hpp"
#include "scratch_folder.hpp"

namespace halotap::io {
namespace {

using pipeline::ConfigError;
using pipeline::DataError;
using test::ScratchFolder;

SinkSpec spec_of(std::int64_t streams, std::int64_t channels, std::int64_t announced_frames, bool is_3d) {
  SinkSpec spec;
  spec.streams = streams;
  spec.channels = channels;
  spec.frames = announced_frames;
  spec.arrangement = is_3d ? Arrangement::kStreamsChannelsFrames : Arrangement::kFramesChannels;
  return spec;
}

std::vector<float> ramp(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return values;
}

// Writes `frames` frames in blocks of random sizes and finishes.
void write_all(Sink& sink, const std::vector<float>& samples, std::int64_t values, std::int64_t most_frames) {
  std::mt19937 random(1);
  const auto frames = static_cast<std::int64_t>(samples.size()) / values;
  for (std::int64_t frame = 0; frame < frames;) {
    const auto count = std::min(std::uniform_int_distribution<std::int64_t>(0, most_frames)(random), frames - frame);
    sink.write(samples.data() + frame * values, count);
    frame += count;
  }
  sink.finish();
}

TEST(NpySink, WritesExactlyNumPysFormat) {
  const ScratchFolder folder;
  const auto sink = open_sink(folder.file("y.npy"), spec_of(1, 2, 3, false));
  write_all(*sink, {1, 2, 3, 4, 5, 6}, 2, 2);
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }";
  header.resize(117, ' ');
  EXPECT_EQ(ScratchFolder::content(folder.file("y.npy")),
            std::string("\x93NUMPY\x01\0\x76\0", 10) + header + '\n' + bytes_of<float>({1, 2, 3, 4, 5, 6}));
}

TEST(NpySink, WritesStreamsInTheirRows) {
  const ScratchFolder folder;
  // Announced, unknown, and fewer than announced.
  for (const std::int64_t announced : {3, -1, 1000}) {
    const auto sink = open_sink(folder.file("y.npy"), spec_of(2, 2, announced, true));
    write_all(*sink, ramp(3 * 4), 4, 2);
    std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 3), }";
    header.resize(117, ' ');
    EXPECT_EQ(ScratchFolder::content(folder.file("y.npy")), std::string("\x93NUMPY\x01\0\x76\0", 10) + header + '\n' +
                                                                bytes_of<float>({0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}))
        << "announced " << announced;
    EXPECT_EQ(folder.entries(), 1u);
  }
}

// Larger than the writer's window.
TEST(NpySink, WritesWhatTheSourceReadsBack) {
  const ScratchFolder folder;
  constexpr std::int64_t kFrames = 400'003;
  const std::vector<float> samples = ramp(kFrames * 6);
  for (const bool is_3d : {false, true}) {
    for (const std::int64_t announced : {kFrames, std::int64_t{-1}, kFrames + 12'345}) {
      const SinkSpec spec = spec_of(is_3d ? 2 : 1, is_3d ? 3 : 6, announced, is_3d);
      write_all(*open_sink(folder.file("y.npy"), spec), samples, 6, 50'000);
      const auto source = open_source(folder.file("y.npy"), {});
      EXPECT_EQ(source->info().arrangement, spec.arrangement);
      EXPECT_EQ(source->info().streams, spec.streams);
      EXPECT_TRUE(read_all(*source, 9999) == samples) << "3-D " << is_3d << ", announced " << announced;
    }
  }
}

TEST(NpySink, KeepsEveryBit) {
  const ScratchFolder folder;
  const std::vector<float> samples = {-0.0f, 1e-45f, std::nanf(""), -HUGE_VALF};
  write_all(*open_sink(folder.file("y.npy"), spec_of(1, 1, -1, false)), samples, 1, 4);
  EXPECT_EQ(ScratchFolder::content(folder.file("y.npy")).substr(128), bytes_of(samples));
}

TEST(NpySink, WritesAnArrayWithoutFrames) {
  const ScratchFolder folder;
  for (const bool is_3d : {false, true}) {
    for (const std::int64_t announced : {0, -1, 5}) {
      open_sink(folder.file("y.npy"), spec_of(1, 4, announced, is_3d))->finish();
      const auto source = open_source(folder.file("y.npy"), {});
      EXPECT_EQ(source->info().frames, 0);
      EXPECT_EQ(source->info().channels, 4);
    }
  }
}

TEST(NpySink, RefusesMoreFramesThanRowsHaveRoomFor) {
  const ScratchFolder folder;
  const auto sink = open_sink(folder.file("y.npy"), spec_of(2, 1, 1, true));
  expect_error<DataError>([&] { sink->write(ramp(4).data(), 2); }, {folder.file("y.npy"), "expected 1 frames"});
}

TEST(NpySink, RefusesSeveralStreamsInOneRecording) {
  const ScratchFolder folder;
  expect_error<ConfigError>([&] { open_sink(folder.file("y.npy"), spec_of(2, 1, 1, false)); }, {"1 stream, got 2"});
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(NpySink, RefusesStandardOutputAndOptions) {
  expect_error<ConfigError>([&] { open_sink("npy://-", spec_of(1, 1, 1, false)); }, {"npy://-", "standard"});
  const ScratchFolder folder;
  expect_error<ConfigError>([&] { open_sink(folder.file("y.npy?rate=1"), spec_of(1, 1, 1, false)); },
                            {"'rate'", "npy has none"});
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(NpySink, LeavesNothingWhenTheDiskIsFull) {
  expect_error<DataError>([&] { open_sink("npy:///dev/full", spec_of(1, 1, 1, false)); }, {"/dev/full", "No space"});

  const ScratchFolder folder;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tiny{1000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tiny), 0);
  for (const bool is_3d : {false, true}) {
    for (const std::int64_t announced : {1000, -1}) {
      const auto sink = open_sink(folder.file("y.npy"), spec_of(1, 1, announced, is_3d));
      expect_error<DataError>([&] { write_all(*sink, ramp(1000), 1, 10); }, {"cannot be written", "File too large"});
    }
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(NpySink, WritesDevicesInEveryArrangement) {
  for (const std::int64_t announced : {3, -1, 10}) {
    write_all(*open_sink("npy:///dev/null", spec_of(2, 2, announced, true)), ramp(12), 4, 2);
  }
}

}  // namespace
}  // namespace halotap::io
