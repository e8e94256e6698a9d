#include "csv/csv_source.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "csv/csv_format.hpp"
#include "file.hpp"
#include "halotap/pipeline/errors.hpp"
#include "in_quotes.hpp"
#include "source_rate.hpp"

namespace halotap::io {

using pipeline::DataError;

namespace {

constexpr std::size_t kMaxRowBytes = 1 << 20;
constexpr std::size_t kMaxColumns = 16384;

struct Cell {
  std::string_view text;  // spaces around are left out; for a quoted cell, with its quotes
  bool is_quoted = false;
};

// Splits a file into rows.
class RowReader {
 public:
  RowReader(File file, char delimiter) : file_(std::move(file)), delimiter_(delimiter) {}

  // The next row's cells, valid until the next call; false at the end. Blank lines may only end the file.
  bool next(std::vector<Cell>& cells) {
    std::string_view line;
    if (!next_line(line)) return false;
    if (line.empty()) {
      const std::int64_t blank = row_;
      while (next_line(line)) {
        if (!line.empty()) throw DataError(file_.name() + ": row " + std::to_string(blank) + ": blank");
      }
      return false;
    }
    split(line, cells);
    return true;
  }

  const std::string& name() const { return file_.name(); }

  // Throws DataError about the row given last.
  [[noreturn]] void fail(std::size_t column, const std::string& what) const {
    throw DataError(file_.name() + ": row " + std::to_string(row_) + ", column " + std::to_string(column + 1) + ": " +
                    what);
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(file_.name() + ": row " + std::to_string(row_) + ": " + what);
  }

 private:
  // The next line without its end (\n or \r\n).
  bool next_line(std::string_view& line) {
    ++row_;
    std::size_t scanned = 0;
    for (;;) {
      const std::string_view held(buffer_.data() + begin_, end_ - begin_);
      const std::size_t newline = held.find('\n', scanned);
      if (newline != std::string_view::npos || (is_at_end_ && !held.empty())) {
        line = held.substr(0, newline);
        begin_ += std::min(held.size(), line.size() + 1);
        if (line.size() > kMaxRowBytes) fail_too_long();
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (row_ == 1 && line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);  // byte order mark
        return true;
      }
      if (is_at_end_) return false;
      if (held.size() > kMaxRowBytes) fail_too_long();
      scanned = held.size();
      fill();
    }
  }

  [[noreturn]] void fail_too_long() const {
    fail("expected at most " + std::to_string(kMaxRowBytes) + " bytes a row, got more");
  }

  void fill() {
    constexpr std::size_t kReadBytes = 1 << 16;
    std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
              buffer_.begin() + static_cast<std::ptrdiff_t>(end_), buffer_.begin());
    end_ -= begin_;
    begin_ = 0;
    if (buffer_.size() < end_ + kReadBytes) buffer_.resize(end_ + kReadBytes);
    const std::size_t count = file_.read_some(buffer_.data() + end_, kReadBytes);
    end_ += count;
    is_at_end_ = count == 0;
  }

  void split(std::string_view line, std::vector<Cell>& cells) const {
    cells.clear();
    for (std::size_t at = 0;;) {
      if (cells.size() == kMaxColumns) fail("expected at most " + std::to_string(kMaxColumns) + " columns, got more");
      while (at < line.size() && is_space(line[at])) ++at;
      const std::size_t begin = at;
      const bool is_quoted = at < line.size() && line[at] == '"';
      if (is_quoted) {
        // A doubled quote stands for one; a line's end inside quotes is not read.
        for (++at; at < line.size() && (line[at] != '"' || line.substr(at).starts_with("\"\"")); ++at) {
          if (line[at] == '"') ++at;
        }
        if (at == line.size()) fail(cells.size(), "expected a closing quote in this row");
        ++at;
      } else {
        at = std::min(line.find(delimiter_, at), line.size());
      }
      std::size_t end = at;
      while (end > begin && is_space(line[end - 1])) --end;
      cells.push_back({line.substr(begin, end - begin), is_quoted});
      while (at < line.size() && is_space(line[at])) ++at;
      if (at == line.size()) return;
      if (line[at] != delimiter_) fail(cells.size() - 1, "expected a delimiter, got " + in_quotes(line.substr(at)));
      ++at;
    }
  }

  bool is_space(char c) const { return c == ' ' || (c == '\t' && delimiter_ != '\t'); }

  File file_;
  char delimiter_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;  // bytes [begin, end) of the buffer are still to be given
  std::size_t end_ = 0;
  bool is_at_end_ = false;
  std::int64_t row_ = 0;
};

std::string name_in(const Cell& cell) {
  if (!cell.is_quoted) return std::string(cell.text);
  std::string name;
  for (std::size_t i = 1; i + 1 < cell.text.size(); ++i) {
    name += cell.text[i];
    if (cell.text[i] == '"') ++i;
  }
  return name;
}

class CsvSource : public Source {
 public:
  CsvSource(File file, char delimiter, std::optional<bool> has_header, double rate_hz)
      : rows_(std::move(file), delimiter) {
    if (!rows_.next(cells_)) throw DataError(rows_.name() + ": expected rows of numbers, got an empty file");
    info_.channels = static_cast<std::int64_t>(cells_.size());
    info_.rate_hz = rate_hz;
    if (has_header ? *has_header : looks_like_header()) {
      read_names();
    } else {
      holds_row_ = true;
    }
  }

  const SourceInfo& info() const override { return info_; }
  std::int64_t read(float* samples, std::int64_t frames) override { return read_as(samples, frames); }
  std::int64_t read(double* samples, std::int64_t frames) override { return read_as(samples, frames); }

 private:
  bool looks_like_header() const {
    std::size_t number = cells_.size();
    std::size_t name = cells_.size();
    for (std::size_t column = 0; column < cells_.size(); ++column) {
      const Cell& cell = cells_[column];
      if (cell.text.empty()) rows_.fail(column, "expected a number or a name, got nothing");
      (!cell.is_quoted && number_in(cell.text) ? number : name) = column;
    }
    if (number < cells_.size() && name < cells_.size()) {
      rows_.fail(name, "expected a row of numbers or a row of names, got " + in_quotes(cells_[name].text) + " beside " +
                           in_quotes(cells_[number].text) + "; if this row is a header, say ?header=true");
    }
    return name < cells_.size();
  }

  void read_names() {
    std::set<std::string> seen;
    for (std::size_t column = 0; column < cells_.size(); ++column) {
      std::string name = name_in(cells_[column]);
      if (name.empty()) rows_.fail(column, "expected a name, got nothing");
      if (std::any_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; })) {
        rows_.fail(column, "expected a name, got control characters in " + in_quotes(name));
      }
      if (!seen.insert(name).second) rows_.fail(column, "the name " + in_quotes(name) + " is there already");
      info_.channel_names.push_back(std::move(name));
    }
  }

  template <class Real>
  std::int64_t read_as(Real* samples, std::int64_t frames) {
    std::int64_t done = 0;
    for (; done < frames && (holds_row_ || rows_.next(cells_)); ++done) {
      holds_row_ = false;
      if (static_cast<std::int64_t>(cells_.size()) != info_.channels) {
        rows_.fail("expected " + std::to_string(info_.channels) + " columns, as in row 1, got " +
                   std::to_string(cells_.size()));
      }
      for (std::size_t column = 0; column < cells_.size(); ++column) *samples++ = value<Real>(column);
    }
    return done;
  }

  template <class Real>
  Real value(std::size_t column) const {
    const Cell& cell = cells_[column];
    if (cell.text.empty()) rows_.fail(column, "missing value");
    std::optional<Real> number;
    if (!cell.is_quoted) {
      if constexpr (std::is_same_v<Real, float>) {
        number = float_in(cell.text);
      } else {
        number = number_in(cell.text);
      }
    }
    if (!number) rows_.fail(column, "expected a number, got " + in_quotes(cell.text));
    return *number;
  }

  RowReader rows_;
  SourceInfo info_;
  std::vector<Cell> cells_;
  bool holds_row_ = false;  // cells_ are a frame that was read but not given yet: the first
};

}  // namespace

std::unique_ptr<Source> open_csv_source(Address& address, const SourceRequest& request) {
  const char delimiter = take_delimiter(address);
  const std::optional<bool> has_header = address.take_bool("header");
  const double rate_hz = take_rate_hz(address, request);
  if (address.path() != "-") {
    return std::make_unique<CsvSource>(File::open_regular(address.path()), delimiter, has_header, rate_hz);
  }
  const int descriptor = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
  if (descriptor < 0) throw DataError("standard input: cannot be read: " + std::generic_category().message(errno));
  return std::make_unique<CsvSource>(File(descriptor, "standard input"), delimiter, has_header, rate_hz);
}

}  // namespace halotap::io
