#include "status_reporter.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <ostream>

#include "latency_json.hpp"
#include "message.hpp"
#include "played_json.hpp"

namespace halotap::apps {
namespace {

using nlohmann::ordered_json;

constexpr std::chrono::milliseconds kLineEvery{100};
constexpr std::chrono::seconds kJsonEvery{1};
constexpr int kMeterCells = 12;
constexpr double kQuietestDb = -60;  // where the meter begins

ordered_json json_of(const io::Level& level) { return {{"peak", level.peak}, {"rms", level.rms}}; }

std::string json_line(const io::SessionTelemetry& told) {
  ordered_json json;
  json["line"] = "status";
  json["time_s"] = static_cast<double>(told.elapsed_ns) / 1e9;
  json["frames"] = told.frames_in;
  json["frames_out"] = told.frames_out;
  json["frames_dropped"] = told.frames_dropped;
  json["frames_skipped"] = told.frames_skipped;
  json["frames_held"] = told.frames_held;
  json["skips"] = told.skips;
  json["gaps"] = told.gaps;
  json["frames_lost"] = told.frames_lost;
  json["frames_filled"] = told.frames_filled;
  json["frames_marked"] = told.frames_marked;
  json["samples_invalid"] = {
      {"nan", told.invalid.nan}, {"infinite", told.invalid.infinite}, {"too_large", told.invalid.too_large}};
  if (told.device_sinks > 0) json["played"] = played_json(told.played);
  json["latency"] = latency_json(told.latency);
  json["latest_us"] = microseconds(std::chrono::nanoseconds(told.latest_ns));
  json["missing"] = told.is_missing != 0;
  json["failovers"] = told.failovers;
  json["ring_frames"] = told.ring_frames;
  json["ring_capacity_frames"] = told.ring_capacity_frames;
  json["level"] = json_of(told.level);
  json["channel_levels"] = ordered_json::array();
  for (std::int64_t i = 0; i < told.channels; ++i) {
    json["channel_levels"].push_back(json_of(told.channel_levels[static_cast<std::size_t>(i)]));
  }
  json["threads"] = ordered_json::array();
  for (std::int64_t i = 0; i < told.threads; ++i) {
    json["threads"].push_back(told.thread_names[static_cast<std::size_t>(i)].data());
  }
  return json.dump() + '\n';
}

std::string meter_of(const io::Level& level) {
  const double decibels = 20 * std::log10(std::max(level.peak, 1e-10));
  const double fraction = std::clamp(1 - decibels / kQuietestDb, 0.0, 1.0);
  const auto full = static_cast<std::size_t>(std::lround(fraction * kMeterCells));
  const std::string text = decibels < -99 ? "-inf" : format_number(decibels, 3);
  return text + " dB [" + std::string(full, '#') + std::string(kMeterCells - full, '.') + "]";
}

}  // namespace

std::string status_line(const io::SessionTelemetry& telemetry, const StatusReporterSpec& spec) {
  const auto seconds = [&spec](std::int64_t frames) {
    return format_number(std::floor(static_cast<double>(frames) / spec.rate_hz * 10) / 10);
  };
  std::string line = seconds(telemetry.frames_in + telemetry.frames_skipped);
  if (spec.frames >= 0) line += " of " + seconds(spec.frames);
  line += " s | " + meter_of(telemetry.level);
  const auto part = [&telemetry](pipeline::LatencyPart which) -> const pipeline::LatencyFigures& {
    return telemetry.latency[static_cast<std::size_t>(which)];
  };
  const pipeline::LatencyFigures& whole = part(pipeline::LatencyPart::kWhole);
  const bool is_known = whole.chunks > 0;
  const pipeline::LatencyFigures& shown = is_known ? whole : part(pipeline::LatencyPart::kEngine);
  if (shown.chunks > 0) {
    line += std::string(is_known ? " | p50 " : " | compute p50 ") +
            pipeline::duration_text(std::chrono::nanoseconds(shown.p50_ns)) + ", p99 " +
            pipeline::duration_text(std::chrono::nanoseconds(shown.p99_ns));
  }
  if (spec.budget_ms) line += ", " + std::to_string(whole.misses) + (telemetry.is_missing != 0 ? " LATE" : " late");
  if (telemetry.ring_capacity_frames > 0) {
    line += " | ring " + std::to_string(100 * telemetry.ring_frames / telemetry.ring_capacity_frames) + " %";
  }
  if (telemetry.played.corrects_drift != 0) {
    line += " | drift " + format_number(std::round(telemetry.played.correction_ppm)) + " ppm";
  }
  if (telemetry.played.underruns > 0) line += " | underruns " + std::to_string(telemetry.played.underruns);
  if (telemetry.failovers > 0) line += " | CARD FAILED";
  if (telemetry.gaps > 0) line += " | gaps " + std::to_string(telemetry.gaps);
  return line;
}

StatusReporter::StatusReporter(const io::PublishedTelemetry& telemetry, const StatusReporterSpec& spec)
    : telemetry_(telemetry), spec_(spec) {
  if (!spec_.shows_line && spec_.json == nullptr) return;
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "halotap-status");
}

StatusReporter::~StatusReporter() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  show_status({});
}

void StatusReporter::run() {
  auto next_json = std::chrono::steady_clock::now() + kJsonEvery;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLineEvery, [this] { return ends_; })) {
    const io::SessionTelemetry told = telemetry_.load();
    if (told.elapsed_ns == 0) continue;  // nothing has been told yet
    if (spec_.json != nullptr && std::chrono::steady_clock::now() >= next_json) {
      next_json += kJsonEvery;
      print(*spec_.json, json_line(told));
    }
    if (spec_.shows_line) show_status(status_line(told, spec_));
  }
}

}  // namespace halotap::apps
