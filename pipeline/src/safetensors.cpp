#include "safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <system_error>
#include <tuple>
#include <utility>

#include "json_reader.hpp"

namespace halotap::pipeline {
namespace {

// The format allows a header of 100 MB, which takes seconds and gigabytes to parse. The largest stack (4096 layers with
// nine tensors each) needs 5 MB; 16 MiB leaves room for metadata and keeps a hostile file cheap to refuse.
constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = std::uint64_t{16} << 20;
constexpr std::size_t kMaxEntries = 65536;
constexpr std::size_t kMaxAxes = 8;

struct Dtype {
  std::string_view name;
  std::uint64_t size_bytes;
};
constexpr std::array kDtypes = {
    Dtype{"BOOL", 1}, Dtype{"U8", 1},  Dtype{"I8", 1},   Dtype{"F8_E5M2", 1}, Dtype{"F8_E4M3", 1}, Dtype{"I16", 2},
    Dtype{"U16", 2},  Dtype{"F16", 2}, Dtype{"BF16", 2}, Dtype{"I32", 4},     Dtype{"U32", 4},     Dtype{"F32", 4},
    Dtype{"F64", 8},  Dtype{"I64", 8}, Dtype{"U64", 8},  Dtype{"C64", 8},     Dtype{"F8_E8M0", 1},
};

std::optional<std::uint64_t> size_bytes_of(std::string_view dtype) {
  const auto found =
      std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& known) { return known.name == dtype; });
  if (found == kDtypes.end()) return std::nullopt;
  return found->size_bytes;
}

// Takes the header as the parser reads it, so that no tree of the whole is ever built and a wrong turn ends the parse
// at once. The grammar is three levels deep, which bounds the nesting:
//
//     { name: { "dtype": text, "shape": [integers], "data_offsets": [integers] }, "__metadata__": { text: text } }
class HeaderReader : public JsonHandler {
 public:
  HeaderReader(std::string place, std::map<std::string, TensorEntry, std::less<>>& tensors)
      : place_(std::move(place)), tensors_(tensors) {}

  void null() override { refuse("null"); }
  void boolean(bool value) override { refuse(value ? "true" : "false"); }

  void number(std::string_view text) override {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc() && end == text.data() + text.size() && value >= 0;
    if (level_ != Level::kNumbers || !whole) refuse(std::string(text));
    if (field_ == Field::kShape && tensor_->second.shape.size() == kMaxAxes) {
      fail(where() + "expected at most " + std::to_string(kMaxAxes) + " axes, got more");
    }
    if (field_ == Field::kOffsets && offsets_.size() == 2) fail(where() + "expected 2 integers, got more");
    if (field_ == Field::kShape) {
      tensor_->second.shape.push_back(value);
    } else {
      offsets_.push_back(static_cast<std::uint64_t>(value));
    }
  }

  void string(const std::string& text) override {
    if (level_ == Level::kMetadata) return;
    if (level_ != Level::kTensor || field_ != Field::kDtype) refuse(in_quotes(text));
    if (!size_bytes_of(text)) fail(where() + "expected a dtype of the format, got " + in_quotes(text));
    tensor_->second.dtype = text;
  }

  void start_object() override {
    if (level_ == Level::kStart) {
      level_ = Level::kRoot;
    } else if (level_ == Level::kRoot) {
      level_ = tensor_ == tensors_.end() ? Level::kMetadata : Level::kTensor;
    } else {
      refuse("an object");
    }
  }

  void key(const std::string& text) override {
    if (level_ == Level::kRoot) {
      open_entry(text);
    } else if (level_ == Level::kMetadata) {
      count_entry();
      const bool fresh = metadata_keys_.insert(text).second;
      if (!fresh) fail(place_ + "metadata " + in_quotes(text) + ": expected once, got again");
    } else {
      open_field(text);
    }
  }

  void end_object() override {
    if (level_ == Level::kTensor) close_tensor();
    level_ = level_ == Level::kRoot ? Level::kStart : Level::kRoot;
  }

  void start_array() override {
    if (level_ != Level::kTensor || field_ == Field::kDtype) refuse("a list");
    level_ = Level::kNumbers;
  }

  void end_array() override { level_ = Level::kTensor; }

  void syntax_error(std::size_t position, std::string_view token) override {
    const std::uint64_t byte = kLengthBytes + position;
    fail(place_ + "header, byte " + std::to_string(byte) + ": expected JSON, got " + in_quotes(token));
  }

 private:
  enum class Level { kStart, kRoot, kMetadata, kTensor, kNumbers };
  enum class Field { kDtype, kShape, kOffsets };

  [[noreturn]] static void fail(const std::string& message) { pipeline::fail(Fault::kModel, message); }

  [[noreturn]] void refuse(const std::string& got) const {
    std::string_view expected = "a header that is an object";
    if (level_ == Level::kRoot) expected = "an object";
    if (level_ == Level::kMetadata) expected = "text";
    if (level_ == Level::kTensor) expected = field_ == Field::kDtype ? "text" : "a list of integers";
    if (level_ == Level::kNumbers) expected = "integers from 0 to 2^63-1";
    fail(where() + "expected " + std::string(expected) + ", got " + got);
  }

  std::string where() const {
    if (level_ == Level::kStart) return place_;
    if (level_ == Level::kMetadata || tensor_ == tensors_.end()) return place_ + "__metadata__: ";
    std::string text = place_ + "tensor " + in_quotes(tensor_->first) + ": ";
    if (level_ == Level::kRoot) return text;
    return text + std::string(kFieldNames[static_cast<std::size_t>(field_)]) + ": ";
  }

  void count_entry() {
    if (++entries_ > kMaxEntries) {
      fail(place_ + "header: expected at most " + std::to_string(kMaxEntries) +
           " tensors and metadata entries, got more");
    }
  }

  void open_entry(const std::string& name) {
    count_entry();
    if (name == "__metadata__") {
      if (metadata_seen_) fail(place_ + "__metadata__: expected once, got again");
      metadata_seen_ = true;
      tensor_ = tensors_.end();
      return;
    }
    bool fresh = false;
    std::tie(tensor_, fresh) = tensors_.try_emplace(name);
    if (!fresh) fail(place_ + "tensor " + in_quotes(name) + ": expected once, got again");
    seen_ = {};
    offsets_.clear();
  }

  void open_field(const std::string& name) {
    const auto found = std::find(kFieldNames.begin(), kFieldNames.end(), name);
    const std::string tensor = place_ + "tensor " + in_quotes(tensor_->first) + ": ";
    if (found == kFieldNames.end()) fail(tensor + "expected dtype, shape and data_offsets, got " + in_quotes(name));
    const auto index = static_cast<std::size_t>(found - kFieldNames.begin());
    if (seen_[index]) fail(tensor + in_quotes(name) + ": expected once, got again");
    seen_[index] = true;
    field_ = static_cast<Field>(index);
  }

  void close_tensor() {
    const std::string tensor = place_ + "tensor " + in_quotes(tensor_->first) + ": ";
    for (std::size_t i = 0; i < kFieldNames.size(); ++i) {
      if (!seen_[i]) fail(tensor + "expected " + std::string(kFieldNames[i]) + ", got none");
    }
    if (offsets_.size() != 2) {
      fail(tensor + "data_offsets: expected 2 integers, got " + std::to_string(offsets_.size()));
    }
    tensor_->second.begin = offsets_[0];
    tensor_->second.end = offsets_[1];
  }

  static constexpr std::array<std::string_view, 3> kFieldNames = {"dtype", "shape", "data_offsets"};  // as in Field

  std::string place_;
  std::map<std::string, TensorEntry, std::less<>>& tensors_;
  std::map<std::string, TensorEntry, std::less<>>::iterator tensor_ = tensors_.end();  // end: in the metadata
  Level level_ = Level::kStart;
  Field field_ = Field::kDtype;
  std::array<bool, kFieldNames.size()> seen_{};
  std::vector<std::uint64_t> offsets_;
  std::set<std::string> metadata_keys_;
  bool metadata_seen_ = false;
  std::size_t entries_ = 0;
};

std::string span_text(const TensorEntry& tensor) {
  return "[" + std::to_string(tensor.begin) + "," + std::to_string(tensor.end) + "]";
}

// Bytes that shape and dtype ask for; nothing when they do not fit in 64 bits.
std::optional<std::uint64_t> bytes_of(const TensorEntry& tensor) {
  std::uint64_t bytes = *size_bytes_of(tensor.dtype);
  // A zero axis makes the product zero whatever stands beside it, so that no order of the axes overflows.
  if (std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end()) return 0;
  for (const std::int64_t axis : tensor.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(axis), &bytes)) return std::nullopt;
  }
  return bytes;
}

double from_f16(std::uint16_t bits) {
  const std::uint64_t sign = std::uint64_t{bits} >> 15 << 63;
  const std::uint64_t exponent = (bits >> 10) & 31U;
  const std::uint64_t fraction = bits & 1023U;
  if (exponent == 0) return (sign != 0 ? -1.0 : 1.0) * static_cast<double>(fraction) * 0x1p-24;
  const std::uint64_t wide_exponent = exponent == 31 ? 2047 : exponent - 15 + 1023;
  return std::bit_cast<double>(sign | wide_exponent << 52 | fraction << 42);
}

double from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

template <typename Stored, typename Widen>
void widen_all(std::span<const char> bytes, double* numbers, Widen widen) {
  for (std::size_t offset = 0; offset < bytes.size(); offset += sizeof(Stored)) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + offset, sizeof(Stored));
    *numbers++ = widen(stored);
  }
}

static_assert(std::endian::native == std::endian::little, "tensors are stored little endian and read as they lie");

}  // namespace

std::string to_string(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t axis : shape) text += (text.size() > 1 ? "," : "") + std::to_string(axis);
  return text + "]";
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path, Fault::kModel) {
  const std::string place = file_.name() + ": ";
  if (file_.size_bytes() < kLengthBytes) {
    fail(Fault::kModel, place + "expected at least 8 bytes, got " + std::to_string(file_.size_bytes()));
  }
  std::array<char, kLengthBytes> length_bytes{};
  file_.read(0, length_bytes);
  const auto header_bytes = std::bit_cast<std::uint64_t>(length_bytes);
  const std::uint64_t most = std::min(file_.size_bytes() - kLengthBytes, kMaxHeaderBytes);
  if (header_bytes > most) {
    fail(Fault::kModel, place + "header length in bytes 0 to 7: expected at most " + std::to_string(most) + ", got " +
                            std::to_string(header_bytes));
  }

  std::string header(header_bytes, '\0');
  file_.read(kLengthBytes, header);
  if (!header.starts_with('{')) {
    fail(Fault::kModel, place + "header, byte 8: expected '{', got " + in_quotes(header.substr(0, 1)));
  }
  if (const std::size_t nul = header.find('\0'); nul != std::string::npos) {
    fail(Fault::kModel,
         place + "header, byte " + std::to_string(kLengthBytes + nul) + ": expected JSON, got a NUL byte");
  }
  HeaderReader reader(place, tensors_);
  read_json(header, reader);

  data_offset_ = kLengthBytes + header_bytes;
  check_spans();
}

void SafetensorsFile::check_spans() const {
  using Named = std::pair<const std::string, TensorEntry>;
  const std::uint64_t data_bytes = file_.size_bytes() - data_offset_;
  const auto place = [&](const Named& tensor) { return file_.name() + ": tensor " + in_quotes(tensor.first) + ": "; };

  std::vector<const Named*> in_order;
  in_order.reserve(tensors_.size());
  for (const Named& named : tensors_) {
    const TensorEntry& tensor = named.second;
    if (tensor.begin > tensor.end || tensor.end > data_bytes) {
      fail(Fault::kModel, place(named) + "data_offsets: expected [begin,end] with begin <= end <= " +
                              std::to_string(data_bytes) + " (the data's bytes), got " + span_text(tensor));
    }
    const std::optional<std::uint64_t> bytes = bytes_of(tensor);
    if (bytes != tensor.end - tensor.begin) {
      fail(Fault::kModel, place(named) + "data_offsets: expected " + (bytes ? std::to_string(*bytes) : "over 2^64") +
                              " bytes for " + tensor.dtype + " " + to_string(tensor.shape) + ", got " +
                              std::to_string(tensor.end - tensor.begin));
    }
    in_order.push_back(&named);
  }

  std::sort(in_order.begin(), in_order.end(), [](const Named* a, const Named* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  std::uint64_t covered = 0;
  const Named* before = nullptr;
  for (const Named* named : in_order) {
    if (named->second.begin != covered) {
      const std::string after = before != nullptr ? " (the end of " + in_quotes(before->first) + ")" : "";
      const std::string_view fault = named->second.begin < covered ? "an overlap" : "a gap";
      fail(Fault::kModel, place(*named) + "data_offsets: expected a begin of " + std::to_string(covered) + after +
                              ", got " + span_text(named->second) + ", " + std::string(fault));
    }
    covered = named->second.end;
    before = named;
  }
  if (covered != data_bytes) {
    fail(Fault::kModel, file_.name() + ": expected " + std::to_string(covered) +
                            " bytes of data after the header, got " + std::to_string(data_bytes));
  }
}

std::vector<double> SafetensorsFile::read(std::string_view tensor) const {
  const std::string place = file_.name() + ": tensor " + in_quotes(tensor) + ": ";
  const auto found = tensors_.find(tensor);
  if (found == tensors_.end()) fail(Fault::kModel, place + "expected in the file, got no such tensor");
  const TensorEntry& entry = found->second;
  const std::uint64_t size_bytes = *size_bytes_of(entry.dtype);
  const bool readable = entry.dtype == "F16" || entry.dtype == "BF16" || entry.dtype == "F32" || entry.dtype == "F64";
  if (!readable) fail(Fault::kModel, place + "dtype: expected F16, BF16, F32 or F64, got " + entry.dtype);

  std::vector<double> numbers((entry.end - entry.begin) / size_bytes);
  std::vector<char> buffer(std::size_t{1} << 16);  // a multiple of every dtype's size
  double* next = numbers.data();
  for (std::uint64_t offset = entry.begin; offset < entry.end; offset += buffer.size()) {
    const std::span<char> bytes(buffer.data(), std::min<std::uint64_t>(buffer.size(), entry.end - offset));
    file_.read(data_offset_ + offset, bytes);
    if (entry.dtype == "F16") {
      widen_all<std::uint16_t>(bytes, next, from_f16);
    } else if (entry.dtype == "BF16") {
      widen_all<std::uint16_t>(bytes, next, from_bf16);
    } else if (entry.dtype == "F32") {
      widen_all<float>(bytes, next, [](float number) { return double{number}; });
    } else {
      widen_all<double>(bytes, next, [](double number) { return number; });
    }
    next += bytes.size() / size_bytes;
  }
  return numbers;
}

}  // namespace halotap::pipeline
