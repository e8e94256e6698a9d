#include "output_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "halotap/pipeline/errors.hpp"

namespace halotap::io {

using pipeline::DataError;

namespace {

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
  throw DataError(path + ": " + what + ": " + std::generic_category().message(error));
}

// Creates "<folder>/.<name>.halotap-<process>-<n>" and tells its path. Opened by O_EXCL and not by mkstemp, so that the
// umask and the folder's defaults give the mode.
int create_beside(const std::filesystem::path& target, std::string* created) {
  static std::atomic<unsigned> count{0};
  // 200: leaves room for the ending within the 255 bytes that file systems allow a name.
  const std::string start = "." + target.filename().string().substr(0, 200) + ".halotap-" + std::to_string(getpid());
  for (;;) {
    const std::string name = start + "-" + std::to_string(count.fetch_add(1, std::memory_order_relaxed));
    *created = (target.parent_path() / name).string();
    const int descriptor = ::open(created->c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0 || errno != EEXIST) return descriptor;
  }
}

}  // namespace

OutputFile::OutputFile(const std::string& path) {
  if (path == "-") {
    const int descriptor = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
    if (descriptor < 0) fail("standard output", "cannot be written", errno);
    file_ = File(descriptor, "standard output");
    return;
  }

  std::filesystem::path target = path;
  struct stat status {};
  if (stat(path.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) throw DataError(path + ": expected a file to write, got a folder");
    if (!S_ISREG(status.st_mode)) {
      const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
      if (descriptor < 0) fail(path, "cannot be written", errno);
      file_ = File(descriptor, path);
      return;
    }
    // A rename needs only the folder's permission; a file that was made read-only is to stay.
    if (faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) fail(path, "cannot be written", errno);
    std::error_code error;
    target = std::filesystem::canonical(target, error);
    if (error) fail(path, "cannot be written", error.value());
  } else if (errno != ENOENT) {
    fail(path, "cannot be written", errno);
  } else if (lstat(path.c_str(), &status) == 0) {
    throw DataError(path + ": expected a file or a free name, got a symbolic link to a file that is not there");
  }
  if (target.filename().empty()) throw DataError(path + ": expected a file to write, got a folder's name");

  const int descriptor = create_beside(target, &temporary_path_);
  if (descriptor < 0) {
    temporary_path_.clear();
    fail(path, "cannot be written", errno);
  }
  file_ = File(descriptor, path);
  final_path_ = target.string();
  folder_ = target.has_parent_path() ? target.parent_path().string() : ".";
}

OutputFile::~OutputFile() {
  if (!temporary_path_.empty()) unlink(temporary_path_.c_str());
}

void OutputFile::finish() {
  file_.close();
  if (temporary_path_.empty()) return;
  if (std::rename(temporary_path_.c_str(), final_path_.c_str()) != 0) fail(file_.name(), "cannot be written", errno);
  temporary_path_.clear();
}

}  // namespace halotap::io
