#include "npy/npz.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <zip.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "file.hpp"
#include "halotap/pipeline/errors.hpp"
#include "in_quotes.hpp"
#include "npy/npy_header.hpp"
#include "npy/npy_source.hpp"
#include "npy/npy_writer.hpp"
#include "output_file.hpp"
#include "source_rate.hpp"

namespace halotap::io {

using pipeline::ConfigError;
using pipeline::DataError;

namespace {

constexpr std::string_view kEnding = ".npy";  // of an array's name in the archive

struct Discard {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_file_t* member) const { zip_fclose(member); }
};
using Archive = std::unique_ptr<zip_t, Discard>;
using Member = std::unique_ptr<zip_file_t, Discard>;

int duplicate(const File& file) {
  const int descriptor = fcntl(file.descriptor(), F_DUPFD_CLOEXEC, 0);
  if (descriptor < 0) throw DataError(file.name() + ": " + std::generic_category().message(errno));
  return descriptor;
}

std::string error_text(int code) {
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  const std::string text = zip_error_strerror(&error);
  zip_error_fini(&error);
  return text;
}

Archive open_archive(const std::string& path) {
  const File file = File::open_regular(path);
  const int descriptor = duplicate(file);
  int error = 0;
  Archive archive(zip_fdopen(descriptor, 0, &error));
  if (!archive) {
    ::close(descriptor);
    throw DataError(path + ": not a readable .npz archive: " + error_text(error));
  }
  return archive;
}

// The member that holds the array named, or the only array.
zip_uint64_t find_array(zip_t* archive, const std::string& path, const std::optional<std::string>& wanted) {
  zip_uint64_t found = 0;
  std::size_t arrays = 0;
  std::string names;
  const zip_int64_t members = zip_get_num_entries(archive, 0);
  for (zip_int64_t member = 0; member < members; ++member) {
    const char* const text = zip_get_name(archive, static_cast<zip_uint64_t>(member), 0);
    const std::string_view name = text ? text : "";
    if (!name.ends_with(kEnding)) continue;
    const std::string_view array = name.substr(0, name.size() - kEnding.size());
    if (wanted && *wanted == array) return static_cast<zip_uint64_t>(member);
    found = static_cast<zip_uint64_t>(member);
    constexpr std::size_t kNamesListed = 10;
    if (++arrays <= kNamesListed) names += (names.empty() ? "" : ", ") + in_quotes(array);
    if (arrays == kNamesListed + 1) names += ", ...";
  }
  if (arrays == 0) throw DataError(path + ": the archive holds no array (.npy)");
  if (wanted) throw DataError(path + ": expected the array " + in_quotes(*wanted) + ", got " + names);
  if (arrays > 1) throw ConfigError(path + ": say which array by ?array=...; the archive holds " + names);
  return found;
}

// A member read front to back.
class MemberReader {
 public:
  MemberReader(zip_t* archive, zip_uint64_t index, std::string name)
      : member_(zip_fopen_index(archive, index, 0)), name_(std::move(name)) {
    if (!member_) throw DataError(name_ + ": cannot be unpacked: " + zip_strerror(archive));
  }

  // Up to `size` bytes; fewer only at the end.
  std::size_t read(std::byte* bytes, std::size_t size) {
    std::size_t done = 0;
    while (done < size) {
      const zip_int64_t count = zip_fread(member_.get(), bytes + done, size - done);
      if (count < 0) throw DataError(name_ + ": cannot be unpacked: " + zip_file_strerror(member_.get()));
      if (count == 0) break;
      done += static_cast<std::size_t>(count);
    }
    return done;
  }

 private:
  Member member_;
  std::string name_;
};

class NpzSink : public Sink {
 public:
  NpzSink(const std::string& path, std::string array, const SinkSpec& spec)
      : output_(path), member_(std::move(array) + std::string(kEnding)), path_(path) {
    if (output_.temporary_path().empty()) throw DataError(path + ": expected a regular file for an archive");
    array_ = File::temporary(output_.folder(), path);
    writer_.emplace(array_, spec, output_.folder());
  }

  void write(const float* samples, std::int64_t frames) override { writer_->write(samples, frames); }

  void finish() override {
    writer_->finish();
    // libzip writes beside the path that it is given, then renames: only ever the temporary file of output_.
    int error = 0;
    Archive archive(zip_open(output_.temporary_path().c_str(), ZIP_CREATE | ZIP_TRUNCATE, &error));
    if (!archive) throw DataError(path_ + ": cannot be written: " + error_text(error));
    const auto require = [&](bool done) {
      if (!done) throw DataError(path_ + ": cannot be written: " + zip_strerror(archive.get()));
    };
    std::FILE* const stream = fdopen(duplicate(array_), "rb");
    require(stream != nullptr);
    zip_source_t* const source = zip_source_filep(archive.get(), stream, 0, -1);
    require(source != nullptr);
    const zip_int64_t index = zip_file_add(archive.get(), member_.c_str(), source, ZIP_FL_ENC_UTF_8);
    if (index < 0) zip_source_free(source);
    require(index >= 0);
    const auto member = static_cast<zip_uint64_t>(index);
    // Stored, as NumPy does: samples hardly shrink. A fixed date (1980-01-01) gives equal results equal bytes.
    require(zip_set_file_compression(archive.get(), member, ZIP_CM_STORE, 0) == 0);
    require(zip_file_set_dostime(archive.get(), member, 0, 1 << 5 | 1, 0) == 0);
    require(zip_close(archive.get()) == 0);
    static_cast<void>(archive.release());  // closed
    output_.finish();
  }

 private:
  OutputFile output_;
  std::string member_;
  std::string path_;
  File array_;
  std::optional<NpyWriter> writer_;
};

}  // namespace

std::unique_ptr<Source> open_npz_source(Address& address, const SourceRequest& request) {
  const std::optional<std::string> wanted = address.take("array");
  const double rate_hz = take_rate_hz(address, request);

  const Archive archive = open_archive(address.path());
  const zip_uint64_t index = find_array(archive.get(), address.path(), wanted);
  const std::string name = address.path() + ": " + in_quotes(zip_get_name(archive.get(), index, 0));
  zip_stat_t status;
  if (zip_stat_index(archive.get(), index, 0, &status) != 0 || !(status.valid & ZIP_STAT_SIZE) ||
      status.size > static_cast<zip_uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    throw DataError(name + ": the archive does not state its size");
  }
  const auto size = static_cast<std::int64_t>(status.size);

  // The header first: what it refuses need not be unpacked.
  MemberReader member(archive.get(), index, name);
  std::vector<std::byte> bytes(kMaxNpyHeaderBytes);
  std::size_t count = member.read(bytes.data(), bytes.size());
  NpyHeader header = read_npy_header(std::span(bytes).first(count), size, name);
  File file = File::temporary("", name);
  std::int64_t unpacked = 0;
  do {
    unpacked += static_cast<std::int64_t>(count);
    if (unpacked > size) break;
    file.write(bytes.data(), count);
    count = member.read(bytes.data(), bytes.size());
  } while (count > 0);
  if (unpacked != size) {
    throw DataError(name + ": expected " + std::to_string(size) + " bytes, as the archive states, got " +
                    (unpacked > size ? "more" : std::to_string(unpacked)));
  }
  return std::make_unique<NpySource>(std::move(file), std::move(header), rate_hz);
}

std::unique_ptr<Sink> open_npz_sink(Address& address, const SinkSpec& spec) {
  const std::string array = address.take("array").value_or("y");
  return std::make_unique<NpzSink>(address.path(), array, spec);
}

}  // namespace halotap::io
