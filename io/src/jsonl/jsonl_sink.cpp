#include "jsonl/jsonl_sink.hpp"

#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text_output.hpp"

namespace halotap::io {

namespace {

class JsonlSink : public Sink {
 public:
  JsonlSink(const std::string& path, const SinkSpec& spec) : output_(path), spec_(spec) {
    for (const std::string& name : spec_.channel_names) {
      // Bytes that are no UTF-8 become U+FFFD, so that every line stays JSON.
      keys_.push_back(nlohmann::json(name).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + ": ");
    }
  }

  void write(const float* samples, std::int64_t frames) override {
    for (std::int64_t i = 0; i < frames; ++i, ++frame_) {
      for (std::int64_t stream = 0; stream < spec_.streams; ++stream) {
        write_line(stream, samples);
        samples += spec_.channels;
      }
    }
    output_.end_write();
  }

  void finish() override { output_.finish(); }

 private:
  void write_line(std::int64_t stream, const float* values) {
    output_.append("{\"frame\": ");
    output_.append_integer(frame_);
    if (spec_.streams > 1) {
      output_.append(", \"stream\": ");
      output_.append_integer(stream);
    }
    if (spec_.rate_hz > 0) {
      output_.append(", \"time_s\": ");
      output_.append_number(static_cast<double>(frame_) / spec_.rate_hz);
    }
    output_.append(keys_.empty() ? ", \"values\": [" : ", \"values\": {");
    for (std::int64_t channel = 0; channel < spec_.channels; ++channel) {
      if (channel > 0) output_.append(", ");
      if (!keys_.empty()) output_.append(keys_[static_cast<std::size_t>(channel)]);
      if (std::isfinite(values[channel])) {
        output_.append_number(values[channel]);
      } else {
        output_.append("null");
      }
    }
    output_.append(keys_.empty() ? "]}\n" : "}}\n");
  }

  TextOutput output_;
  SinkSpec spec_;
  std::vector<std::string> keys_;  // "\"name\": "
  std::int64_t frame_ = 0;
};

}  // namespace

std::unique_ptr<Sink> open_jsonl_sink(Address& address, const SinkSpec& spec) {
  return std::make_unique<JsonlSink>(address.path(), spec);
}

}  // namespace halotap::io
