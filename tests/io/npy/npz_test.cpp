#include "npy/npz.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zip.h>

#include <csignal>
#include <filesystem>
#include <utility>

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

using Members = std::vector<std::pair<std::string, std::string>>;  // name and content

void write_archive(const std::string& path, const Members& members, int compression) {
  int error = 0;
  zip_t* const archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &error);
  ASSERT_NE(archive, nullptr);
  for (const auto& [name, content] : members) {
    zip_source_t* const source = zip_source_buffer(archive, content.data(), content.size(), 0);
    const zip_int64_t index = zip_file_add(archive, name.c_str(), source, 0);
    ASSERT_GE(index, 0);
    ASSERT_EQ(zip_set_file_compression(archive, static_cast<zip_uint64_t>(index), compression, 0), 0);
  }
  ASSERT_EQ(zip_close(archive), 0);
}

std::string array(const std::vector<float>& values) {
  return npy_file("<f4", false, "(" + std::to_string(values.size()) + ",)", bytes_of(values));
}

TEST(NpzSource, ReadsTheOnlyArray) {
  const ScratchFolder folder;
  const std::string path = folder.file("x.npz");
  for (const int compression : {ZIP_CM_STORE, ZIP_CM_DEFLATE}) {
    write_archive(path, {{"readme.txt", "hello"}, {"x.npy", array({1, 2, 3})}}, compression);
    EXPECT_EQ(read_all(*open_source(path, {})), (std::vector<float>{1, 2, 3}));
  }
}

TEST(NpzSource, ReadsTheArrayNamed) {
  const ScratchFolder folder;
  const std::string path = folder.file("x.npz");
  write_archive(path, {{"a.npy", array({1})}, {"b c.npy", array({2})}}, ZIP_CM_STORE);
  EXPECT_EQ(read_all(*open_source(path + "?array=b%20c&rate=10", {})), (std::vector<float>{2}));
  expect_error<ConfigError>([&] { open_source(path, {}); }, {path, "?array=", "'a', 'b c'"});
  expect_error<DataError>([&] { open_source(path + "?array=d", {}); }, {path, "'d'", "'a', 'b c'"});
}

// More than the buffer that the header is looked for in.
TEST(NpzSource, ReadsLargeArrays) {
  const ScratchFolder folder;
  std::vector<float> values(300'000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
  write_archive(folder.file("x.npz"), {{"x.npy", array(values)}}, ZIP_CM_DEFLATE);
  EXPECT_TRUE(read_all(*open_source(folder.file("x.npz"), {}), 7000) == values);
}

TEST(NpzSource, RefusesArchivesWithoutAWholeArray) {
  const ScratchFolder folder;
  const std::string path = folder.file("x.npz");
  const auto refuse = [&](const std::vector<std::string>& parts) {
    expect_error<DataError>([&] { open_source(path, {}); }, parts);
  };
  refuse({path, "No such file"});
  folder.write("x.npz", "");
  refuse({path, "not a readable .npz archive"});
  folder.write("x.npz", "PK\x03\x04 and nothing more");
  refuse({path, "not a readable .npz archive"});
  std::filesystem::remove(path);
  write_archive(path, {{"readme.txt", "hello"}}, ZIP_CM_STORE);
  refuse({path, "no array"});
  write_archive(path, {{"x.npy", npy_file("<f4", false, "(1073741824,)", "")}}, ZIP_CM_STORE);
  refuse({path, "'x.npy'", "4294967296 bytes", "got 0"});
  write_archive(path, {{"x.npy", npy_file("|O", false, "(1,)", "12345678")}}, ZIP_CM_STORE);
  refuse({path, "'x.npy'", "Python objects"});
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  refuse({path, "got a folder"});
}

TEST(NpzSource, RefusesDamagedMembers) {
  const ScratchFolder folder;
  const std::string path = folder.file("x.npz");
  std::vector<float> values(100'000, 1.0f);
  write_archive(path, {{"x.npy", array(values)}}, ZIP_CM_STORE);
  std::string content = ScratchFolder::content(path);
  content[content.size() / 2] ^= 1;
  folder.write("x.npz", content);
  expect_error<DataError>([&] { open_source(path, {}); }, {path, "'x.npy'", "CRC"});
}

TEST(NpzSink, WritesWhatTheSourceReadsBack) {
  const ScratchFolder folder;
  const std::string path = folder.file("y.npz");
  SinkSpec spec;
  spec.streams = 2;
  spec.channels = 1;
  spec.frames = 3;
  spec.arrangement = Arrangement::kStreamsChannelsFrames;
  const std::vector<float> samples = {1, 2, 3, 4, 5, 6};
  for (const std::string option : {"", "?array=left"}) {
    const auto sink = open_sink(path + option, spec);
    sink->write(samples.data(), 3);
    sink->finish();
    EXPECT_EQ(folder.entries(), 1u);
    const auto source = open_source(path + (option.empty() ? "?array=y" : option), {});
    EXPECT_EQ(source->info().streams, 2);
    EXPECT_EQ(read_all(*source), samples);
  }
}

// Equal results are equal files: the archive's clock stands at 1980-01-01 00:00.
TEST(NpzSink, DatesItsArrayAlike) {
  const ScratchFolder folder;
  SinkSpec spec;
  spec.channels = 1;
  open_sink(folder.file("y.npz"), spec)->finish();
  constexpr std::size_t kTimeOffset = 10;  // of the first member's header: time and date, 2 bytes each
  EXPECT_EQ(ScratchFolder::content(folder.file("y.npz")).substr(kTimeOffset, 4), std::string("\0\0\x21\0", 4));
}

TEST(NpzSink, LeavesNothingWithoutFinishOrWhenTheDiskIsFull) {
  const ScratchFolder folder;
  SinkSpec spec;
  spec.channels = 1;
  const std::vector<float> samples(1000);
  { open_sink(folder.file("y.npz"), spec)->write(samples.data(), 1000); }
  EXPECT_EQ(folder.entries(), 0u);
  expect_error<DataError>([&] { open_sink("npz:///dev/full", spec); }, {"/dev/full", "regular file"});

  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  // Room for a part of the array, and for the array but not for the archive around it.
  for (const rlim_t room : {1000, 4128 + 50}) {
    const rlimit tiny{room, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tiny), 0);
    expect_error<DataError>(
        [&] {
          const auto sink = open_sink(folder.file("y.npz"), spec);
          sink->write(samples.data(), 1000);
          sink->finish();
        },
        {folder.file("y.npz"), "cannot be written", "File too large"});
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(folder.entries(), 0u);
}

}  // namespace
}  // namespace halotap::io
