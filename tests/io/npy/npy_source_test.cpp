#include "npy/npy_source.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <random>

#include "expect_error.hpp"
#include "halotap/pipeline/errors.hpp"
#include "npy/npy_bytes.hpp"
#include "read_all.hpp"
#include "scratch_folder.hpp"

namespace halotap::io {
namespace {

using pipeline::ConfigError;
using pipeline::DataError;
using test::ScratchFolder;

std::unique_ptr<Source> open(const std::string& path) { return open_source(path, {}); }

template <class Value>
void expect_values(const std::string& descr, const std::vector<Value>& values, const std::vector<double>& expected) {
  const ScratchFolder folder;
  const std::string shape = "(" + std::to_string(values.size()) + ", 1)";
  for (const bool big : {false, true}) {
    const std::string path =
        folder.write("x.npy", npy_file((big ? ">" : "<") + descr, false, shape, bytes_of(values, big)));
    EXPECT_EQ(read_all<double>(*open(path)), expected) << descr << (big ? " big" : " little");
    EXPECT_EQ(read_all<float>(*open(path)), std::vector<float>(expected.begin(), expected.end())) << descr;
  }
}

TEST(NpySource, ReadsEveryNumberTypeOfEitherByteOrder) {
  expect_values<float>("f4", {1.5f, -0.0f, 1e-45f, 3e38f}, {1.5, -0.0, 1e-45f, 3e38f});
  expect_values<double>("f8", {0.1, -1e-300, 1e300}, {0.1, -1e-300, 1e300});
  expect_values<std::int16_t>("i2", {-32768, 32767, 256}, {-32768, 32767, 256});
  expect_values<std::int32_t>("i4", {std::numeric_limits<std::int32_t>::min(), 16777217, 256},
                              {-2147483648.0, 16777217, 256});
  // 1, -2, the largest, the smallest normal, the largest and the smallest denormal
  expect_values<std::uint16_t>("f2", {0x3c00, 0xc000, 0x7bff, 0x0400, 0x03ff, 0x8001},
                               {1, -2, 65504, 0x1p-14, 1023 * 0x1p-24, -0x1p-24});
  expect_values<std::uint16_t>("f2", {0x7c00, 0xfc00}, {HUGE_VAL, -HUGE_VAL});
}

TEST(NpySource, KeepsNanAndInfAndLetsLargeDoublesBecomeInf) {
  const ScratchFolder folder;
  const double inf = std::numeric_limits<double>::infinity();
  const std::string path =
      folder.write("x.npy", npy_file("<f8", false, "(4,)", bytes_of<double>({std::nan(""), -inf, 1e300, -1e300})));
  const std::vector<float> values = read_all(*open(path));
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_EQ(values[1], -inf);
  EXPECT_EQ(values[2], inf);
  EXPECT_EQ(values[3], -inf);
  const std::string half = folder.write("h.npy", npy_file("<f2", false, "(1,)", bytes_of<std::uint16_t>({0x7e00})));
  EXPECT_TRUE(std::isnan(read_all(*open(half))[0]));
}

TEST(NpySource, ReadsOneAxisAsMono) {
  const ScratchFolder folder;
  const std::string path = folder.write("x.npy", npy_file("<i2", false, "(3,)", bytes_of<std::int16_t>({1, 2, 3})));
  const auto source = open(path);
  EXPECT_EQ(source->info().frames, 3);
  EXPECT_EQ(source->info().channels, 1);
  EXPECT_EQ(source->info().arrangement, Arrangement::kFramesChannels);
  EXPECT_EQ(read_all(*source), (std::vector<float>{1, 2, 3}));
}

// The number that frame, stream and channel make in every file below.
std::int32_t value_at(std::int64_t frame, std::int64_t stream, std::int64_t channel) {
  return static_cast<std::int32_t>(frame * 1000000 + stream * 1000 + channel);
}

std::vector<double> expected_values(std::int64_t frames, std::int64_t streams, std::int64_t channels) {
  std::vector<double> values;
  for (std::int64_t t = 0; t < frames; ++t) {
    for (std::int64_t s = 0; s < streams; ++s) {
      for (std::int64_t c = 0; c < channels; ++c) values.push_back(value_at(t, s, c));
    }
  }
  return values;
}

TEST(NpySource, ReadsFortranOrderRight) {
  const ScratchFolder folder;
  for (const bool fortran : {false, true}) {
    std::vector<std::int32_t> values;
    for (std::int64_t i = 0; i < 7 * 3; ++i) {
      values.push_back(fortran ? value_at(i % 7, 0, i / 7) : value_at(i / 3, 0, i % 3));
    }
    const auto source = open(folder.write("x.npy", npy_file("<i4", fortran, "(7, 3)", bytes_of(values))));
    EXPECT_EQ(source->info().frames, 7);
    EXPECT_EQ(source->info().channels, 3);
    EXPECT_EQ(source->info().streams, 1);
    EXPECT_EQ(read_all<double>(*source, 2), expected_values(7, 1, 3)) << (fortran ? "Fortran" : "C");
  }
}

TEST(NpySource, ReadsThreeAxesAsStreamsInBothOrders) {
  const ScratchFolder folder;
  constexpr std::int64_t kStreams = 2, kChannels = 3, kFrames = 7;
  for (const bool fortran : {false, true}) {
    std::vector<std::int32_t> values;
    for (std::int64_t i = 0; i < kStreams * kChannels * kFrames; ++i) {
      const std::int64_t t = fortran ? i / (kStreams * kChannels) : i % kFrames;
      const std::int64_t c = fortran ? i / kStreams % kChannels : i / kFrames % kChannels;
      const std::int64_t s = fortran ? i % kStreams : i / (kFrames * kChannels);
      values.push_back(value_at(t, s, c));
    }
    const auto source = open(folder.write("x.npy", npy_file(">i4", fortran, "(2, 3, 7)", bytes_of(values, true))));
    EXPECT_EQ(source->info().frames, kFrames);
    EXPECT_EQ(source->info().channels, kChannels);
    EXPECT_EQ(source->info().streams, kStreams);
    EXPECT_EQ(source->info().arrangement, Arrangement::kStreamsChannelsFrames);
    EXPECT_EQ(read_all<double>(*source, 3), expected_values(kFrames, kStreams, kChannels));
  }
}

// Larger than the reader's window, so that windows meet inside blocks and the last one is short.
TEST(NpySource, ReadsTheSameForEveryPartition) {
  const ScratchFolder folder;
  constexpr std::int64_t kChannels = 3, kFrames = 500'001;
  for (const bool fortran : {false, true}) {
    std::vector<std::int32_t> values;
    for (std::int64_t i = 0; i < kFrames * kChannels; ++i) {
      values.push_back(fortran ? value_at(i % kFrames % 997, 0, i / kFrames) : value_at(i / 3 % 997, 0, i % 3));
    }
    const std::string path = folder.write("x.npy", npy_file("<i4", fortran, "(500001, 3)", bytes_of(values)));
    const auto source = open(path);
    std::mt19937 random(1);
    std::vector<double> block;
    for (std::int64_t frame = 0; frame < kFrames;) {
      const std::int64_t wanted = std::uniform_int_distribution<std::int64_t>(1, 60'000)(random);
      block.resize(static_cast<std::size_t>(wanted * kChannels));
      const std::int64_t count = source->read(block.data(), wanted);
      ASSERT_EQ(count, std::min(wanted, kFrames - frame));
      for (std::int64_t i = 0; i < count * kChannels; ++i) {
        ASSERT_EQ(block[static_cast<std::size_t>(i)], value_at((frame + i / kChannels) % 997, 0, i % kChannels));
      }
      frame += count;
    }
  }
}

TEST(NpySource, TakesArraysWithoutFrames) {
  const ScratchFolder folder;
  EXPECT_TRUE(read_all(*open(folder.write("a.npy", npy_file("<f4", false, "(0, 4)", "")))).empty());
  EXPECT_TRUE(read_all(*open(folder.write("b.npy", npy_file("<f4", true, "(2, 4, 0)", "")))).empty());
  EXPECT_TRUE(read_all(*open(folder.write("c.npy", npy_file("<f4", false, "(0,)", "")))).empty());
}

TEST(NpySource, ReadsVersionsTwoAndThreeAndKeysInAnyOrder) {
  const ScratchFolder folder;
  const std::string data = bytes_of<float>({1, 2});
  for (const char version : {2, 3}) {
    const std::string text = "{\"shape\":(2,),'fortran_order':False , \"descr\" : '<f4'}";
    EXPECT_EQ(read_all(*open(folder.write("x.npy", npy_file(text, data, version)))), (std::vector<float>{1, 2}));
  }
}

TEST(NpySource, TakesItsRateFromTheOptionOrTheRequest) {
  const ScratchFolder folder;
  const std::string path = folder.write("x.npy", npy_file("<f4", false, "(1,)", bytes_of<float>({1})));
  EXPECT_EQ(open_source(path, {})->info().rate_hz, 0);
  EXPECT_EQ(open_source(path, {1, {}, 100})->info().rate_hz, 100);
  EXPECT_EQ(open_source(path + "?rate=250", {})->info().rate_hz, 250);
}

// One line for each file: the header or the whole file, and what the message must say.
TEST(NpySource, RefusesMalformedHeaders) {
  const ScratchFolder folder;
  const auto refuse = [&](const std::string& content, const std::vector<std::string>& parts) {
    const std::string path = folder.write("x.npy", content);
    std::vector<std::string> all = parts;
    all.push_back(path + ": ");
    expect_error<DataError>([&] { open(path); }, all);
  };
  const auto header = [](const std::string& text) { return npy_file(text, std::string(8, '\0')); };
  refuse("", {"not an .npy file"});
  refuse("\x93NUMPY", {"not an .npy file"});
  refuse("RIFF....WAVEfmt ", {"not an .npy file"});
  refuse(std::string("\x93NUMPY\x04\x00\x10\x00                ", 26), {"version", "4.0"});
  refuse(std::string("\x93NUMPY\x01\x01\x10\x00                ", 26), {"version", "1.1"});
  refuse(std::string("\x93NUMPY\x02\x00\x10\x00", 10), {"header's length"});
  refuse(std::string("\x93NUMPY\x01\x00\x76\x00", 10), {"118 bytes", "got 0"});
  refuse(std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12), {"at most 65536", "4294967295"});
  refuse(header(""), {"byte 64", "expected '{'", "end of the header"});
  refuse(header("{'descr': '<f4', 'fortran_order': False}"), {"key shape"});
  refuse(header("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)"), {"expected '}'"});
  refuse(header("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x"), {"nothing behind", "'x"});
  refuse(header("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}"), {"once each", "'descr'"});
  refuse(header("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}"), {"once each", "'x'"});
  refuse(header("{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}"), {"byte 44", "True or False"});
  refuse(header("{'descr': '<f4', 'fortran_order': False, 'shape': (2)}"), {"expected ','"});
  refuse(header("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}"), {"axis length", "'-2,"});
  refuse(header("{'descr': '<f4', 'fortran_order': False, 'shape': (2.0,)}"), {"expected ','", "'.0"});
  refuse(header("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}"), {"axis length"});
  refuse(header("{'descr': '<f4', 'fortran_order': False, 'shape': [2]}"), {"expected '('"});
  refuse(header("{descr: '<f4'}"), {"expected a string"});
  refuse(header("{'descr"), {"closing quote"});
}

TEST(NpySource, RefusesTypesThatAreNoSamples) {
  const ScratchFolder folder;
  const auto refuse = [&](const std::string& descr, const std::vector<std::string>& parts) {
    const std::string text = "{'descr': " + descr + ", 'fortran_order': False, 'shape': (1,)}";
    expect_error<DataError>([&] { open(folder.write("x.npy", npy_file(text, "12345678"))); }, parts);
  };
  refuse("'|O'", {"byte 20", "Python objects", "'|O'"});
  refuse("'O'", {"Python objects"});
  refuse("[('a', '<f4')]", {"records"});
  for (const std::string descr : {"|u1", "<i8", "<c8", "<U1", "|b1", "=f4", "f4", "<f4 ", "<f", ""}) {
    refuse("'" + descr + "'", {"f2, f4, f8, i2 or i4", "'" + descr + "'"});
  }
}

TEST(NpySource, RefusesShapesThatAreNoRecording) {
  const ScratchFolder folder;
  const auto refuse = [&](const std::string& shape, const std::vector<std::string>& parts) {
    expect_error<DataError>([&] { open(folder.write("x.npy", npy_file("<f4", false, shape, ""))); }, parts);
  };
  refuse("()", {"shape ()", "[frames, channels]"});
  refuse("(1, 1, 1, 0)", {"shape (1, 1, 1, 0)"});
  refuse("(5, 0)", {"1 to 65536 channels", "(5, 0)"});
  refuse("(0, 1, 5)", {"streams", "(0, 1, 5)"});
  // Nothing behind them, but a frame would fill the memory.
  refuse("(0, 1000000000000)", {"channels", "(0, 1000000000000)"});
  refuse("(1000000, 60000, 0)", {"values a frame"});
}

TEST(NpySource, RefusesSizesThatTheFileDoesNotHold) {
  const ScratchFolder folder;
  const auto refuse = [&](const std::string& shape, std::size_t held, const std::vector<std::string>& parts) {
    expect_error<DataError>(
        [&] { open(folder.write("x.npy", npy_file("<f4", false, shape, std::string(held, '\0')))); }, parts);
  };
  refuse("(1073741824,)", 12, {"(1073741824,)", "4294967296 bytes", "got 12"});
  refuse("(3, 2)", 23, {"24 bytes", "got 23"});
  refuse("(3, 2)", 25, {"24 bytes", "got 25"});
  refuse("(0, 2)", 1, {"0 bytes", "got 1"});
  refuse("(9223372036854775807, 1)", 4, {"larger than any file"});
  refuse("(2305843009213693953, 8)", 32, {"larger than any file"});
}

TEST(NpySource, RefusesWhatIsNoFile) {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder.file("d.npy"));
  ASSERT_EQ(mkfifo(folder.file("p.npy").c_str(), 0600), 0);
  expect_error<DataError>([&] { open(folder.file("d.npy")); }, {folder.file("d.npy"), "got a folder"});
  expect_error<DataError>([&] { open(folder.file("p.npy")); }, {folder.file("p.npy"), "pipe"});
  expect_error<DataError>([&] { open("npy:///dev/zero"); }, {"/dev/zero", "device"});
  expect_error<DataError>([&] { open(folder.file("m.npy")); }, {folder.file("m.npy"), "No such file"});
  expect_error<ConfigError>([&] { open("npy://-"); }, {"npy://-", "standard input"});
}

TEST(NpySource, TellsWhenTheFileIsCutWhileItIsRead) {
  const ScratchFolder folder;
  const std::string path = folder.write("x.npy", npy_file("<f4", false, "(2, 1)", bytes_of<float>({1, 2})));
  const auto source = open(path);
  std::filesystem::resize_file(path, 132);
  expect_error<DataError>([&] { read_all(*source); }, {path, "byte 132", "expected 4 more"});
}

}  // namespace
}  // namespace halotap::io
