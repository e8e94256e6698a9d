#include "csv/csv_sink.hpp"

#include <cstddef>
#include <string>

#include "csv/csv_format.hpp"
#include "halotap/pipeline/errors.hpp"
#include "text_output.hpp"

namespace halotap::io {

namespace {

// Quoted when it would otherwise not come back as this name.
std::string header_cell(const std::string& name, char delimiter) {
  const bool is_plain = name.find_first_of("\"\r\n\t ") == std::string::npos &&
                        name.find(delimiter) == std::string::npos && !number_in(name);
  if (is_plain) return name;
  std::string cell = "\"";
  for (const char c : name) cell += c == '"' ? std::string("\"\"") : std::string(1, c);
  return cell + '"';
}

class CsvSink : public Sink {
 public:
  CsvSink(const std::string& path, char delimiter, const SinkSpec& spec)
      : output_(path), delimiter_(delimiter), channels_(spec.channels) {
    for (std::size_t channel = 0; channel < spec.channel_names.size(); ++channel) {
      if (channel > 0) output_.append(delimiter_);
      output_.append(header_cell(spec.channel_names[channel], delimiter_));
    }
    if (!spec.channel_names.empty()) output_.append('\n');
  }

  void write(const float* samples, std::int64_t frames) override {
    for (std::int64_t frame = 0; frame < frames; ++frame) {
      for (std::int64_t channel = 0; channel < channels_; ++channel) {
        if (channel > 0) output_.append(delimiter_);
        output_.append_number(*samples++);
      }
      output_.append('\n');
    }
    output_.end_write();
  }

  void finish() override { output_.finish(); }

 private:
  TextOutput output_;
  char delimiter_;
  std::int64_t channels_;
};

}  // namespace

std::unique_ptr<Sink> open_csv_sink(Address& address, const SinkSpec& spec) {
  const char delimiter = take_delimiter(address);
  if (spec.streams != 1) {
    throw pipeline::ConfigError(address.text() + ": a CSV file holds 1 stream, got " + std::to_string(spec.streams) +
                                "; write an .npy file instead");
  }
  return std::make_unique<CsvSink>(address.path(), delimiter, spec);
}

}  // namespace halotap::io
