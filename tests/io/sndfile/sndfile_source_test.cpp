#include "sndfile/sndfile_source.hpp"

#include <gtest/gtest.h>
#include <sndfile.h>
#include <sys/stat.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "expect_error.hpp"
#include "halotap/io/endpoint.hpp"
#include "halotap/pipeline/errors.hpp"
#include "read_all.hpp"
#include "scratch_folder.hpp"

namespace halotap::io {
namespace {

using pipeline::DataError;
using test::ScratchFolder;

std::string little(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) {
    text += static_cast<char>(value >> (8 * i));
  }
  return text;
}

std::string chunk(const std::string& name, const std::string& content) {
  return name + little(content.size(), 4) + content + std::string(content.size() % 2, '\0');
}

struct Format {
  int tag = 1;  // 1: PCM, 3: float
  int channels = 1;
  std::int64_t rate_hz = 16000;
  int bits = 16;
};

std::string format_chunk(const Format& format) {
  const int frame_bytes = format.channels * format.bits / 8;
  return chunk("fmt ", little(format.tag, 2) + little(format.channels, 2) + little(format.rate_hz, 4) +
                           little(format.rate_hz * frame_bytes, 4) + little(frame_bytes, 2) + little(format.bits, 2));
}

std::string riff(const std::string& chunks) { return "RIFF" + little(chunks.size() + 4, 4) + "WAVE" + chunks; }

std::string wav(const Format& format, const std::string& samples) {
  return riff(format_chunk(format) + chunk("data", samples));
}

// The file with `value` in the four bytes at `at`.
std::string patched(std::string file, std::size_t at, std::uint64_t value) {
  return file.replace(at, 4, little(value, 4));
}
constexpr std::size_t kRiffSizeAt = 4;
constexpr std::size_t kDataSizeAt = 40;

std::unique_ptr<Source> open(const std::string& file) {
  Address address(file);
  return open_sndfile_source(address, {});
}

// A tone, coded by libsndfile as `format`.
std::vector<float> write_tone(const std::string& file, int format, std::int64_t frames = 20000) {
  SF_INFO info{};
  info.samplerate = 48000;
  info.channels = 2;
  info.format = format;
  SNDFILE* handle = sf_open(file.c_str(), SFM_WRITE, &info);
  EXPECT_NE(handle, nullptr) << sf_strerror(nullptr);
  std::vector<float> samples(static_cast<std::size_t>(2 * frames));
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::size_t frame = i / 2;
    samples[i] = 0.5F * std::sin(0.03F * static_cast<float>(frame) + static_cast<float>(i % 2));
  }
  EXPECT_EQ(sf_writef_float(handle, samples.data(), frames), frames);
  EXPECT_EQ(sf_close(handle), 0);
  return samples;
}

double rms_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
  }
  return std::sqrt(sum / static_cast<double>(a.size()));
}

TEST(SndfileSource, Scales16BitSamplesAndKeepsChannelsInOrder) {
  const ScratchFolder folder;
  const auto source = open(folder.write(
      "x.wav", wav({.channels = 2, .rate_hz = 22050}, little(0x8000, 2) + little(0x4000, 2) + little(0x7fff, 2) +
                                                          little(0xffff, 2) + little(1, 2) + little(0, 2))));
  EXPECT_EQ(source->info().channels, 2);
  EXPECT_EQ(source->info().rate_hz, 22050);
  EXPECT_EQ(source->info().frames, 3);
  EXPECT_EQ(source->info().streams, 1);
  EXPECT_EQ(source->info().arrangement, Arrangement::kFramesChannels);
  EXPECT_EQ(read_all(*source), (std::vector<float>{-1.0F, 0.5F, 32767 / 32768.0F, -1 / 32768.0F, 1 / 32768.0F, 0.0F}));
}

TEST(SndfileSource, ScalesEveryPcmWidth) {
  const ScratchFolder folder;
  const std::vector<float> expected = {-1.0F, 0.5F, 0.0F};
  EXPECT_EQ(read_all(*open(folder.write("8.wav", wav({.bits = 8}, std::string("\x00\xc0\x80", 3))))), expected);
  EXPECT_EQ(read_all(*open(
                folder.write("24.wav", wav({.bits = 24}, little(0x800000, 3) + little(0x400000, 3) + little(0, 3))))),
            expected);
  EXPECT_EQ(read_all(*open(folder.write(
                "32.wav", wav({.bits = 32}, little(0x80000000, 4) + little(0x40000000, 4) + little(0, 4))))),
            expected);
}

TEST(SndfileSource, GivesFloatAndDoubleAsTheyAre) {
  const ScratchFolder folder;
  const auto float_bits = [](float value) { return little(std::bit_cast<std::uint32_t>(value), 4); };
  const auto double_bits = [](double value) { return little(std::bit_cast<std::uint64_t>(value), 8); };
  const auto floats = open(
      folder.write("f.wav", wav({.tag = 3, .bits = 32}, float_bits(-3.5F) + float_bits(NAN) + float_bits(INFINITY))));
  const std::vector<float> read = read_all(*floats);
  ASSERT_EQ(read.size(), 3U);
  EXPECT_EQ(read[0], -3.5F);
  EXPECT_TRUE(std::isnan(read[1]));
  EXPECT_EQ(read[2], INFINITY);

  const std::string file = folder.write("d.wav", wav({.tag = 3, .bits = 64}, double_bits(1.0 / 3)));
  EXPECT_EQ(read_all<float>(*open(file)), std::vector<float>{static_cast<float>(1.0 / 3)});
  EXPECT_EQ(read_all<double>(*open(file)), std::vector<double>{1.0 / 3});
}

TEST(SndfileSource, ReadsFlacWithoutLoss) {
  const ScratchFolder folder;
  write_tone(folder.file("x.flac"), SF_FORMAT_FLAC | SF_FORMAT_PCM_24);
  write_tone(folder.file("x.wav"), SF_FORMAT_WAV | SF_FORMAT_PCM_24);
  EXPECT_EQ(read_all(*open(folder.file("x.flac"))), read_all(*open(folder.file("x.wav")), 5000));
}

TEST(SndfileSource, ReadsVorbisAndOpus) {
  const ScratchFolder folder;
  for (const int coding : {SF_FORMAT_VORBIS, SF_FORMAT_OPUS}) {
    const std::vector<float> tone = write_tone(folder.file("x.ogg"), SF_FORMAT_OGG | coding);
    const auto source = open(folder.file("x.ogg"));
    EXPECT_EQ(source->info().frames, 20000);
    const std::vector<float> read = read_all(*source);
    ASSERT_EQ(read.size(), tone.size());
    EXPECT_LT(rms_difference(read, tone), 0.02);
  }
}

TEST(SndfileSource, ReadsRf64AndChunksAroundTheSamples) {
  const ScratchFolder folder;
  const std::vector<float> tone = write_tone(folder.file("x.wav"), SF_FORMAT_RF64 | SF_FORMAT_FLOAT);
  EXPECT_EQ(read_all(*open(folder.file("x.wav"))), tone);
  const auto source = open(folder.write("y.wav", riff(chunk("odd ", "abc") + format_chunk({}) +
                                                      chunk("data", little(0x4000, 2)) + chunk("note", "hello"))));
  EXPECT_EQ(read_all(*source), std::vector<float>{0.5F});
}

TEST(SndfileSource, ReadsNoFramesFromAFileOfNone) {
  const ScratchFolder folder;
  const auto source = open(folder.write("x.wav", wav({}, "")));
  EXPECT_EQ(source->info().frames, 0);
  EXPECT_TRUE(read_all(*source).empty());
}

TEST(SndfileSource, LeavesTheLengthOpenWhereFlacDoes) {
  const ScratchFolder folder;
  const std::vector<float> tone = write_tone(folder.file("x.flac"), SF_FORMAT_FLAC | SF_FORMAT_PCM_16);
  std::string file = ScratchFolder::content(folder.file("x.flac"));
  file[21] = static_cast<char>(file[21] & 0xf0);  // the 36 bits of the frame count
  const auto source = open(folder.write("x.flac", patched(file, 22, 0)));
  EXPECT_EQ(source->info().frames, -1);
  EXPECT_EQ(read_all(*source).size(), tone.size());
}

TEST(SndfileSource, RefusesMoreFramesThanTheFileHas) {
  const ScratchFolder folder;
  const std::string good = wav({}, std::string(1000, '\1'));
  for (const std::uint64_t claim : {1002U, 0x7fffffffU, 0xffffffffU}) {
    const std::string file = folder.write("x.wav", patched(good, kDataSizeAt, claim));
    expect_error<DataError>([&] { open(file); }, {file, "byte 36", "data", std::to_string(claim), "got 1000"});
  }
  const std::string cut = folder.write("x.wav", good.substr(0, 500));
  expect_error<DataError>([&] { open(cut); }, {cut, "expected 1000 bytes", "got 456"});
}

TEST(SndfileSource, RefusesFewerFramesThanTheFileHas) {
  const ScratchFolder folder;
  const std::string good = wav({}, std::string(1000, '\1'));
  for (const std::uint64_t claim : {0U, 500U}) {
    const std::string file = folder.write("x.wav", patched(good, kDataSizeAt, claim));
    expect_error<DataError>([&] { open(file); }, {file, std::to_string(claim) + " bytes of samples"});
  }
  // As left by a recorder that died: no size was ever filled in.
  const std::string file = folder.write("x.wav", patched(patched(good, kRiffSizeAt, 0), kDataSizeAt, 0));
  expect_error<DataError>([&] { open(file); }, {file, "0 bytes of samples"});
}

TEST(SndfileSource, RefusesPartOfAFrame) {
  const ScratchFolder folder;
  const std::string file = folder.write("x.wav", wav({.channels = 2}, std::string(6, '\1')));
  expect_error<DataError>([&] { open(file); }, {file, "frames of 4 bytes", "got 6"});
}

TEST(SndfileSource, RefusesChannelsAndRatesOutOfRange) {
  const ScratchFolder folder;
  for (const int channels : {0, 1025, 65535}) {
    const std::string file = folder.write("x.wav", wav({.channels = channels}, std::string(8, '\0')));
    expect_error<DataError>([&] { open(file); },
                            {file, "channels: expected 1 to 1024", "got " + std::to_string(channels)});
  }
  for (const std::int64_t rate_hz : {std::int64_t{0}, std::int64_t{1'000'001}, std::int64_t{0xffffffff}}) {
    const std::string file = folder.write("x.wav", wav({.rate_hz = rate_hz}, std::string(8, '\0')));
    expect_error<DataError>([&] { open(file); }, {file, "rate: expected 1 to 1000000 Hz", std::to_string(rate_hz)});
  }
}

TEST(SndfileSource, RefusesCodingsItDoesNotList) {
  const ScratchFolder folder;
  write_tone(folder.file("u.wav"), SF_FORMAT_WAV | SF_FORMAT_ULAW);
  expect_error<DataError>([&] { open(folder.file("u.wav")); }, {folder.file("u.wav"), "PCM", "got U-Law"});
  write_tone(folder.file("a.wav"), SF_FORMAT_AIFF | SF_FORMAT_PCM_16);
  expect_error<DataError>([&] { open(folder.file("a.wav")); }, {folder.file("a.wav"), "WAV, FLAC or OGG", "AIFF"});
}

TEST(SndfileSource, MustHaveTheModelsRateAndChannels) {
  const ScratchFolder folder;
  const std::string file = folder.write("x.wav", wav({.channels = 2, .rate_hz = 8000}, little(0x40002000, 4)));
  SourceRequest request;
  request.rate_hz = 16000;
  expect_error<DataError>([&] { open_source(file, request); }, {file, "16000 Hz", "8000 Hz", "resample=true"});
  request.rate_hz = 8000;
  request.channels = 1;
  expect_error<DataError>([&] { open_source(file, request); }, {file, "channels: expected 1", "got 2", "channels="});
  EXPECT_EQ(read_all(*open_source(file + "?channels=1", request)), std::vector<float>{0.5F});
}

TEST(SndfileSource, RefusesWhatIsNoAudioFile) {
  const ScratchFolder folder;
  const std::string text = folder.write("text.wav", "once upon a time there was a text\n");
  expect_error<DataError>([&] { open(text); }, {text, "WAV, FLAC or OGG"});
  const std::string empty = folder.write("empty.wav", "");
  expect_error<DataError>([&] { open(empty); }, {empty, "empty"});
  const std::string missing = folder.file("missing.wav");
  expect_error<DataError>([&] { open(missing); }, {missing, "No such file"});
  const std::string directory = folder.file("folder.wav");
  std::filesystem::create_directory(directory);
  expect_error<DataError>([&] { open(directory); }, {directory, "folder"});
  const std::string pipe = folder.file("pipe.wav");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_error<DataError>([&] { open(pipe); }, {pipe, "pipe"});
}

TEST(SndfileSource, RefusesEveryCutWav) {
  const ScratchFolder folder;
  const std::string good = wav({}, std::string(64, '\1'));
  for (std::size_t size = 0; size < good.size(); ++size) {
    const std::string file = folder.write("x.wav", good.substr(0, size));
    expect_error<DataError>([&] { open(file); }, {file});
  }
}

TEST(SndfileSource, RefusesMoreChunksThanAnyRecorderWrites) {
  const ScratchFolder folder;
  std::string chunks = format_chunk({});
  for (int i = 0; i < 20000; ++i) {
    chunks += chunk("none", "");
  }
  const std::string file = folder.write("x.wav", riff(chunks + chunk("data", "")));
  expect_error<DataError>([&] { open(file); }, {file, "10000 chunks"});
}

TEST(SndfileSource, RefusesDamagedFlacWhereItIsRead) {
  const ScratchFolder folder;
  write_tone(folder.file("x.flac"), SF_FORMAT_FLAC | SF_FORMAT_PCM_16);
  const std::string good = ScratchFolder::content(folder.file("x.flac"));
  const std::string cut = folder.write("cut.flac", good.substr(0, good.size() / 2));
  const auto cut_source = open(cut);
  expect_error<DataError>([&] { read_all(*cut_source); }, {cut, "frame "});

  std::string long_claim = patched(good, 22, 0xffffffff);
  const std::string file = folder.write("long.flac", long_claim);
  const auto source = open(file);
  expect_error<DataError>([&] { read_all(*source, 4096); },
                          {file, "expected " + std::to_string(source->info().frames), "got 20000"});
}

TEST(SndfileSource, RefusesDamagedOgg) {
  const ScratchFolder folder;
  write_tone(folder.file("x.ogg"), SF_FORMAT_OGG | SF_FORMAT_VORBIS, 100000);
  const std::string good = ScratchFolder::content(folder.file("x.ogg"));
  ASSERT_EQ(open(folder.file("x.ogg"))->info().frames, 100000);

  std::string file = folder.write("cut.ogg", good.substr(0, good.size() - 10));
  expect_error<DataError>([&] { open(file); }, {file, "Ogg page", "end of the file"});
  const std::size_t last_page = good.rfind("OggS");
  file = folder.write("short.ogg", good.substr(0, last_page));
  expect_error<DataError>([&] { open(file); }, {file, "byte " + std::to_string(last_page), "another Ogg page"});
  std::string damaged = good;
  damaged[last_page - 20] = static_cast<char>(damaged[last_page - 20] ^ 1);
  file = folder.write("damaged.ogg", damaged);
  expect_error<DataError>([&] { open(file); }, {file, "checksum"});
  file = folder.write("junk.ogg", good + std::string(100, 'x'));
  expect_error<DataError>([&] { open(file); }, {file, "byte " + std::to_string(good.size())});
}

}  // namespace
}  // namespace halotap::io
