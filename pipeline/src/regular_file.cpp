#include "regular_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace halotap::pipeline {
namespace {

std::string system_reason() { return std::generic_category().message(errno); }

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

RegularFile::RegularFile(const std::filesystem::path& path, Fault fault)
    : name_(printable(path.string())), fault_(fault) {
  // O_NONBLOCK: opening a FIFO would otherwise wait for its writer. Regular files do not heed it.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail(fault, name_ + ": expected a readable file, got: " + system_reason());
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    fail(fault, name_ + ": expected a regular file, got " + std::string(kind_of(status.st_mode)));
  }
  size_bytes_ = static_cast<std::uint64_t>(status.st_size);
}

RegularFile::~RegularFile() { ::close(descriptor_); }

void RegularFile::read(std::uint64_t offset, std::span<char> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      const std::string reason = got < 0 ? system_reason() : "the end of the file";
      fail(fault_, name_ + ": byte " + std::to_string(offset) + ": expected " + std::to_string(bytes.size()) +
                       " more bytes, got: " + reason);
    }
    offset += static_cast<std::uint64_t>(got);
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

}  // namespace halotap::pipeline
