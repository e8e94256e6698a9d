#include "sndfile/sndfile_sink.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "expect_error.hpp"
#include "halotap/pipeline/errors.hpp"
#include "scratch_folder.hpp"
#include "sndfile/sndfile_source.hpp"

namespace halotap::io {
namespace {

using pipeline::ConfigError;
using pipeline::DataError;
using test::ScratchFolder;

std::unique_ptr<Sink> open(const std::string& file, const SinkSpec& spec) {
  Address address(file);
  return open_sndfile_sink(address, spec);
}

SinkSpec spec_of(std::int64_t channels, std::int64_t frames = -1) {
  SinkSpec spec;
  spec.channels = channels;
  spec.rate_hz = 16000;
  spec.frames = frames;
  return spec;
}

std::vector<float> read_back(const std::string& file) {
  Address address(file);
  const auto source = open_sndfile_source(address, {});
  std::vector<float> samples(static_cast<std::size_t>(source->info().frames * source->info().channels));
  EXPECT_EQ(source->read(samples.data(), source->info().frames), source->info().frames);
  return samples;
}

TEST(SndfileSink, WritesWhatItWasGiven) {
  const ScratchFolder folder;
  const std::vector<float> samples = {0.25F, -7.0F, NAN, 1e-40F, -INFINITY, 3e38F};
  for (const std::int64_t announced : {std::int64_t{-1}, std::int64_t{3}, std::int64_t{100}}) {
    const auto sink = open(folder.file("x.wav"), spec_of(2, announced));
    sink->write(samples.data(), 2);
    sink->write(samples.data() + 4, 1);
    sink->finish();
    const std::vector<float> read = read_back(folder.file("x.wav"));
    ASSERT_EQ(read.size(), samples.size());
    EXPECT_EQ(std::memcmp(read.data(), samples.data(), samples.size() * sizeof(float)), 0);
    const std::string header = ScratchFolder::content(folder.file("x.wav"));
    EXPECT_EQ(header.substr(0, 4), "RIFF");
    EXPECT_EQ(header.substr(8, 4), "WAVE");
  }
}

TEST(SndfileSink, WritesPlainFloatWavWhenTheLengthIsKnown) {
  const ScratchFolder folder;
  const auto sink = open(folder.file("x.wav"), spec_of(3, 0));
  sink->finish();
  const std::string header = ScratchFolder::content(folder.file("x.wav"));
  EXPECT_EQ(header.substr(12, 4), "fmt ");
  EXPECT_EQ(header.substr(20, 4), std::string("\x03\x00\x03\x00", 4));  // WAVE_FORMAT_IEEE_FLOAT, 3 channels
}

// libsndfile's peak chunk, which it adds unasked, holds the time of writing.
TEST(SndfileSink, WritesNoTime) {
  const ScratchFolder folder;
  const float sample = 0.5F;
  for (const std::int64_t announced : {std::int64_t{-1}, std::int64_t{1}}) {
    const auto sink = open(folder.file("x.wav"), spec_of(1, announced));
    sink->write(&sample, 1);
    sink->finish();
    EXPECT_EQ(ScratchFolder::content(folder.file("x.wav")).find("PEAK"), std::string::npos);
  }
}

TEST(SndfileSink, LeavesNothingWithoutFinish) {
  const ScratchFolder folder;
  const float sample = 1;
  {
    const auto sink = open(folder.file("x.wav"), spec_of(1));
    sink->write(&sample, 1);
    EXPECT_FALSE(std::filesystem::exists(folder.file("x.wav")));
  }
  EXPECT_EQ(folder.entries(), 0U);
}

TEST(SndfileSink, RefusesWhatWavCannotHold) {
  const ScratchFolder folder;
  const std::string file = folder.file("x.wav");
  SinkSpec spec = spec_of(1);
  spec.streams = 2;
  expect_error<ConfigError>([&] { open(file, spec); }, {file, "1 stream", "got 2"});
  expect_error<ConfigError>([&] { open(file, spec_of(1025)); }, {file, "1024 channels", "got 1025"});
  spec = spec_of(1);
  spec.rate_hz = 16000.5;
  expect_error<ConfigError>([&] { open(file, spec); }, {file, "whole number of Hz", "got 16000.5"});
  spec.rate_hz = 0;
  expect_error<ConfigError>([&] { open(file, spec); }, {file, "got 0"});
  EXPECT_EQ(folder.entries(), 0U);
}

TEST(SndfileSink, RefusesAPipe) {
  const ScratchFolder folder;
  const std::string pipe = folder.file("x.wav");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  expect_error<ConfigError>([&] { open(pipe, spec_of(1)); }, {pipe, "not to a pipe"});
  ::close(reader);
}

TEST(SndfileSink, RefusesPlacesWhereNoFileCanBe) {
  const ScratchFolder folder;
  expect_error<DataError>([&] { open(folder.file("none/x.wav"), spec_of(1)); }, {"none/x.wav", "No such file"});
  const std::string directory = folder.file("folder.wav");
  std::filesystem::create_directory(directory);
  expect_error<DataError>([&] { open(directory, spec_of(1)); }, {directory, "folder"});
}

TEST(SndfileSink, ReportsAFullDisk) {
  if (::access("/dev/full", W_OK) != 0) {
    GTEST_SKIP() << "no /dev/full here";
  }
  expect_error<DataError>(
      [&] {
        const auto sink = open("wav:///dev/full", spec_of(1));
        const std::vector<float> samples(100000);
        sink->write(samples.data(), 100000);
      },
      {"/dev/full", "No space left on device"});
}

// Ends the process: 0 when a write beyond the file size allowed throws, names file and reason, and leaves nothing. That
// limit stops a write half way, as a full disk does.
[[noreturn]] void write_past_the_limit(const ScratchFolder& folder) {
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{100000, 100000};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::string message;
  try {
    const auto sink = open(folder.file("x.wav"), spec_of(1));
    const std::vector<float> samples(20000);
    sink->write(samples.data(), 20000);
    sink->write(samples.data(), 20000);
  } catch (const DataError& error) {
    message = error.what();
  }
  const bool is_named =
      message.find(folder.file("x.wav")) != std::string::npos && message.find("File too large") != std::string::npos;
  std::_Exit(is_named && folder.entries() == 0 ? 0 : 1);
}

TEST(SndfileSink, ReportsAShortWriteAndLeavesNothing) {
  const ScratchFolder folder;
  EXPECT_EXIT(write_past_the_limit(folder), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace halotap::io
