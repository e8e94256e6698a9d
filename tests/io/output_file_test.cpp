#include "output_file.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "expect_error.hpp"
#include "halotap/pipeline/errors.hpp"
#include "scratch_folder.hpp"

namespace halotap::io {
namespace {

using pipeline::DataError;
using test::ScratchFolder;

mode_t mode_of(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
}

TEST(OutputFile, AppearsWholeAtFinish) {
  const ScratchFolder folder;
  const std::string path = folder.write("out.bin", "old");
  OutputFile output(path);
  output.file().write("new content", 11);
  EXPECT_EQ(ScratchFolder::content(path), "old");
  output.finish();
  EXPECT_EQ(ScratchFolder::content(path), "new content");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(OutputFile, LeavesNothingWithoutFinish) {
  const ScratchFolder folder;
  {
    OutputFile output(folder.file("out.bin"));
    output.file().write("half", 4);
    EXPECT_EQ(folder.entries(), 1u);
  }
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(OutputFile, KeepsAnOldFileWithoutFinish) {
  const ScratchFolder folder;
  const std::string path = folder.write("out.bin", "old");
  { OutputFile(path).file().write("half", 4); }
  EXPECT_EQ(ScratchFolder::content(path), "old");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(OutputFile, GetsTheModeOfANewFile) {
  const ScratchFolder folder;
  const mode_t before = umask(027);
  OutputFile output(folder.file("out.bin"));
  umask(before);
  output.finish();
  EXPECT_EQ(mode_of(folder.file("out.bin")), 0640u);
}

TEST(OutputFile, ReplacesTheFileBehindASymbolicLink) {
  const ScratchFolder folder;
  const std::string target = folder.write("target.bin", "old");
  std::filesystem::create_symlink("target.bin", folder.file("link.bin"));
  OutputFile output(folder.file("link.bin"));
  output.file().write("new", 3);
  output.finish();
  EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link.bin")));
  EXPECT_EQ(ScratchFolder::content(target), "new");
}

TEST(OutputFile, RefusesASymbolicLinkThatLeadsNowhere) {
  const ScratchFolder folder;
  std::filesystem::create_symlink("none.bin", folder.file("link.bin"));
  expect_error<DataError>([&] { OutputFile output(folder.file("link.bin")); },
                          {folder.file("link.bin"), "expected a file", "got a symbolic link"});
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(OutputFile, TakesNamesAsLongAsTheSystemAllows) {
  const ScratchFolder folder;
  OutputFile output(folder.file(std::string(255, 'x')));
  output.finish();
  EXPECT_EQ(folder.entries(), 1u);
  expect_error<DataError>([&] { OutputFile(folder.file(std::string(256, 'x'))); }, {"xxx", "too long"});
}

TEST(OutputFile, RefusesPlacesThatCannotBeWritten) {
  const ScratchFolder folder;
  expect_error<DataError>([&] { OutputFile(folder.file("")); }, {folder.file(""), "got a folder"});
  expect_error<DataError>([&] { OutputFile(folder.file("new/")); }, {folder.file("new/"), "got a folder's name"});
  expect_error<DataError>([&] { OutputFile(folder.file("none/out.bin")); },
                          {folder.file("none/out.bin"), "No such file or directory"});
  folder.write("file", "");
  expect_error<DataError>([&] { OutputFile(folder.file("file/out.bin")); },
                          {folder.file("file/out.bin"), "Not a directory"});
}

// The superuser may write anywhere; the tests may run as one.
class OrdinaryUser {
 public:
  OrdinaryUser() : before_(geteuid()) {
    constexpr uid_t kNobody = 65534;
    if (before_ == 0) {
      EXPECT_EQ(seteuid(kNobody), 0);
    }
  }
  ~OrdinaryUser() { EXPECT_EQ(seteuid(before_), 0); }

 private:
  uid_t before_;
};

TEST(OutputFile, RefusesReadOnlyFilesAndFolders) {
  const ScratchFolder folder;
  chmod(folder.file("").c_str(), 0777);
  const std::string path = folder.write("out.bin", "old");
  chmod(path.c_str(), 0444);
  std::filesystem::create_directory(folder.file("locked"));
  chmod(folder.file("locked").c_str(), 0555);
  const OrdinaryUser user;
  expect_error<DataError>([&] { OutputFile output(path); }, {path, "Permission denied"});
  expect_error<DataError>([&] { OutputFile output(folder.file("locked/out.bin")); },
                          {folder.file("locked/out.bin"), "Permission denied"});
}

TEST(OutputFile, WritesDevicesStraightThrough) {
  OutputFile output("/dev/null");
  EXPECT_TRUE(output.temporary_path().empty());
  output.file().write("x", 1);
  output.finish();
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(OutputFile, TellsOfAFullDisk) {
  OutputFile output("/dev/full");
  expect_error<DataError>([&] { output.file().write("x", 1); }, {"/dev/full", "No space left on device"});
  expect_error<DataError>([&] { output.file().write_at(0, "x", 1); }, {"/dev/full", "No space left on device"});
}

// The system takes a part of such a write and refuses only the next one.
TEST(OutputFile, TellsOfAFileGrownTooLarge) {
  const ScratchFolder folder;
  OutputFile output(folder.file("out.bin"));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tiny{1000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tiny), 0);
  const std::string bytes(4096, 'x');
  expect_error<DataError>([&] { output.file().write(bytes.data(), bytes.size()); },
                          {folder.file("out.bin"), "File too large"});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
}

}  // namespace
}  // namespace halotap::io
