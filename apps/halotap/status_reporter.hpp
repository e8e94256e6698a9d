// What a run is doing, told while it runs.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <iosfwd>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "halotap/io/telemetry.hpp"

namespace halotap::apps {

struct StatusReporterSpec {
  std::int64_t frames = -1;  // how long the run will be; -1 when not known
  double rate_hz = 0;        // > 0
  std::optional<double> budget_ms = std::nullopt;
  bool shows_line = false;       // a status line on standard error, renewed ten times a second
  std::ostream* json = nullptr;  // gets a JSON line every second
};

// Reads `telemetry` and reports, on a thread of its own, so that no terminal and no pipe holds the session up. Its
// status line is gone when it is destroyed. `telemetry` must outlive it.
class StatusReporter {
 public:
  StatusReporter(const io::PublishedTelemetry& telemetry, const StatusReporterSpec& spec);
  ~StatusReporter();
  StatusReporter(const StatusReporter&) = delete;
  StatusReporter& operator=(const StatusReporter&) = delete;

 private:
  void run();

  const io::PublishedTelemetry& telemetry_;
  StatusReporterSpec spec_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;  // under the mutex
  std::thread thread_;
};

// The status line: "1.5 of 10 s | -12.3 dB [########....] | p50 4.2 ms, p99 6.1 ms, 0 late | ring 3 %".
std::string status_line(const io::SessionTelemetry& telemetry, const StatusReporterSpec& spec);

}  // namespace halotap::apps
