#include "file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "halotap/pipeline/errors.hpp"

namespace halotap::io {

using pipeline::DataError;

namespace {

[[noreturn]] void fail(const std::string& name, const char* what, int error) {
  throw DataError(name + ": " + what + ": " + std::generic_category().message(error));
}

}  // namespace

File::File(int descriptor, std::string name) : descriptor_(descriptor), name_(std::move(name)) {
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) {
    const int error = errno;
    ::close(descriptor_);
    fail(name_, "cannot be examined", error);
  }
  is_regular_ = S_ISREG(status.st_mode);
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      name_(std::move(other.name_)),
      is_regular_(other.is_regular_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(name_, other.name_);
  std::swap(is_regular_, other.is_regular_);
  return *this;
}

File File::open_regular(const std::string& path) {
  // O_NONBLOCK: a pipe that nobody writes to is refused below instead of being waited for. Regular files ignore it.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) fail(path, "cannot be opened", errno);
  File file(descriptor, path);
  if (!file.is_regular()) {
    struct stat status {};
    const bool is_folder = fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode);
    throw DataError(path + ": expected a file, got a " + (is_folder ? "folder" : "pipe, socket or device"));
  }
  return file;
}

File File::temporary(const std::string& folder, const std::string& purpose) {
  const char* const system = std::getenv("TMPDIR");
  const std::string place = !folder.empty() ? folder : system && *system ? system : "/tmp";
  std::string path = place + "/.halotap-XXXXXX";
  const int descriptor = mkostemp(path.data(), O_CLOEXEC);
  const std::string name = purpose + ": temporary file in " + place;
  if (descriptor < 0) fail(name, "cannot be made", errno);
  unlink(path.c_str());
  return File(descriptor, name);
}

std::int64_t File::size_bytes() const {
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) fail(name_, "cannot be examined", errno);
  return status.st_size;
}

void File::read_at(std::int64_t offset, void* bytes, std::size_t size) const {
  for (auto* at = static_cast<std::byte*>(bytes); size > 0;) {
    const ssize_t count = pread(descriptor_, at, size, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(name_, "cannot be read", errno);
    if (count == 0) {
      throw DataError(name_ + ": ends at byte " + std::to_string(offset) + ", expected " + std::to_string(size) +
                      " more: it was cut while being read");
    }
    at += count;
    offset += count;
    size -= static_cast<std::size_t>(count);
  }
}

void File::write_at(std::int64_t offset, const void* bytes, std::size_t size) {
  for (auto* at = static_cast<const std::byte*>(bytes); size > 0;) {
    const ssize_t count = pwrite(descriptor_, at, size, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(name_, "cannot be written", count < 0 ? errno : ENOSPC);
    at += count;
    offset += count;
    size -= static_cast<std::size_t>(count);
  }
}

std::size_t File::read_some(void* bytes, std::size_t size) {
  for (;;) {
    const ssize_t count = ::read(descriptor_, bytes, size);
    if (count >= 0) return static_cast<std::size_t>(count);
    if (errno != EINTR) fail(name_, "cannot be read", errno);
  }
}

void File::write(const void* bytes, std::size_t size) {
  for (auto* at = static_cast<const std::byte*>(bytes); size > 0;) {
    const ssize_t count = ::write(descriptor_, at, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(name_, "cannot be written", count < 0 ? errno : ENOSPC);
    at += count;
    size -= static_cast<std::size_t>(count);
  }
}

void File::truncate(std::int64_t size) {
  while (ftruncate(descriptor_, size) != 0) {
    if (errno != EINTR) fail(name_, "cannot be cut to its length", errno);
  }
}

void File::close() {
  const int descriptor = std::exchange(descriptor_, -1);
  if (descriptor >= 0 && ::close(descriptor) != 0) fail(name_, "cannot be written", errno);
}

}  // namespace halotap::io
