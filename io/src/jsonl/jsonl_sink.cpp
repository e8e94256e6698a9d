#include "jsonl/jsonl_sink.hpp"

#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "halotap/pipeline/errors.hpp"
#include "in_quotes.hpp"
#include "text_output.hpp"

namespace halotap::io {

namespace {

// In quotes. Bytes that are no UTF-8 become U+FFFD, so that every line stays JSON.
std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Which lines are written.
struct Lines {
  bool frames = true;
  bool events = true;
};

class JsonlSink : public Sink {
 public:
  JsonlSink(const std::string& path, Lines lines, const SinkSpec& spec) : output_(path), lines_(lines), spec_(spec) {
    for (const std::string& name : spec_.channel_names) keys_.push_back(json_text(name) + ": ");
  }

  void write(const float* samples, std::int64_t frames) override { write_lines(samples, frames, false); }
  void write_held(const float* samples, std::int64_t frames) override { write_lines(samples, frames, true); }

  void write_event(const pipeline::StageEvent& event) override {
    if (!lines_.events) return;
    output_.append("{\"event\": " + json_text(event.name) + ", \"channel\": ");
    if (event.channel_name.empty()) {
      output_.append_integer(event.channel);
    } else {
      output_.append(json_text(event.channel_name));
    }
    output_.append(", \"frame\": ");
    output_.append_integer(event.frame);
    append_stream(event.stream);
    append_time(event.time_s);
    output_.append(", \"stage\": ");
    output_.append_integer(event.stage);
    output_.append("}\n");
    output_.end_write();
  }

  // Whichever lines are asked for: no reader is to take results across a gap for others.
  void write_gap(const HandledGap& gap) override {
    output_.append("{\"gap\": " + json_text(pipeline::to_string(gap.action)) + ", \"frame\": ");
    output_.append_integer(gap.first_frame);
    output_.append(", \"frames\": ");
    output_.append_integer(gap.frames);
    output_.append(", \"frames_lost\": ");
    output_.append_integer(gap.gap.frames_lost);
    output_.append(", \"frames_dropped\": ");
    output_.append_integer(gap.gap.frames_dropped);
    output_.append(", \"frames_filled\": ");
    output_.append_integer(gap.frames_filled);
    output_.append(", \"frames_skipped\": ");
    output_.append_integer(gap.frames_skipped);
    output_.append(gap.gap.is_reopening ? ", \"reopened\": true}\n" : ", \"reopened\": false}\n");
    output_.end_write();
  }

  void finish() override { output_.finish(); }

 private:
  void write_lines(const float* samples, std::int64_t frames, bool are_held) {
    if (!lines_.frames) return;
    for (std::int64_t i = 0; i < frames; ++i, ++frame_) {
      for (std::int64_t stream = 0; stream < spec_.streams; ++stream) {
        write_line(stream, samples, are_held);
        samples += spec_.channels;
      }
    }
    output_.end_write();
  }

  void write_line(std::int64_t stream, const float* values, bool is_held) {
    output_.append("{\"frame\": ");
    output_.append_integer(frame_);
    append_stream(stream);
    if (spec_.rate_hz > 0) append_time(static_cast<double>(frame_) / spec_.rate_hz);
    if (is_held) output_.append(", \"held\": true");
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

  // A rate far below any in use leads to times that no double holds.
  void append_time(double time_s) {
    output_.append(", \"time_s\": ");
    if (std::isfinite(time_s)) {
      output_.append_number(time_s);
    } else {
      output_.append("null");
    }
  }

  void append_stream(std::int64_t stream) {
    if (spec_.streams < 2) return;
    output_.append(", \"stream\": ");
    output_.append_integer(stream);
  }

  TextOutput output_;
  Lines lines_;
  SinkSpec spec_;
  std::vector<std::string> keys_;  // "\"name\": "
  std::int64_t frame_ = 0;
};

}  // namespace

std::unique_ptr<Sink> open_jsonl_sink(Address& address, const SinkSpec& spec) {
  const std::string lines = address.take("lines").value_or("all");
  if (lines != "all" && lines != "frames" && lines != "events") {
    throw pipeline::ConfigError(address.text() + ": option lines: expected all, frames or events, got " +
                                in_quotes(lines));
  }
  if (lines == "events" && !spec.has_events) {
    throw pipeline::ConfigError(address.text() +
                                ": option lines: expected all or frames, got 'events'; no stage makes events");
  }
  return std::make_unique<JsonlSink>(address.path(), Lines{lines != "events", lines != "frames"}, spec);
}

}  // namespace halotap::io
