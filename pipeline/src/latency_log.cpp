#include "halotap/pipeline/latency_log.hpp"

namespace halotap::pipeline {
namespace {

std::optional<std::chrono::nanoseconds> nanoseconds_of(std::optional<double> milliseconds) {
  if (!milliseconds) return std::nullopt;
  return std::chrono::round<std::chrono::nanoseconds>(std::chrono::duration<double, std::milli>(*milliseconds));
}

}  // namespace

std::string_view to_string(LatencyPart part) {
  switch (part) {
    case LatencyPart::kSource:
      return "source";
    case LatencyPart::kEngine:
      return "engine";
    case LatencyPart::kStages:
      return "stages";
    case LatencyPart::kSinks:
      return "sinks";
    case LatencyPart::kWhole:
      return "whole";
  }
  return "?";
}

LatencyLog::LatencyLog(const LatencyConfig& config)
    : budgets_{nanoseconds_of(config.budgets.source_ms), nanoseconds_of(config.budgets.engine_ms),
               nanoseconds_of(config.budgets.stages_ms), nanoseconds_of(config.budgets.sinks_ms),
               nanoseconds_of(config.budget_ms)} {}

void LatencyLog::record(LatencyPart part, std::chrono::nanoseconds time) noexcept HALOTAP_NONBLOCKING {
  const auto index = static_cast<std::size_t>(part);
  times_[index].record(time);
  if (budgets_[index] && time > *budgets_[index]) ++misses_[index];
}

void LatencyLog::record(const ChunkTimes& times) noexcept HALOTAP_NONBLOCKING {
  record(LatencyPart::kEngine, times.computed - times.begun);
  record(LatencyPart::kStages, times.staged - times.computed);
  record(LatencyPart::kSinks, times.handed_over - times.staged);
  if (!times.captured) return;
  record(LatencyPart::kSource, times.begun - *times.captured);
  record(LatencyPart::kWhole, times.handed_over - *times.captured);
}

bool LatencyLog::is_late(std::chrono::nanoseconds whole) const noexcept HALOTAP_NONBLOCKING {
  const auto& budget = budgets_[static_cast<std::size_t>(LatencyPart::kWhole)];
  return budget && whole > *budget;
}

LatencyFigures LatencyLog::figures(LatencyPart part) const noexcept HALOTAP_NONBLOCKING {
  LatencyFigures figures = times(part).figures();
  figures.misses = misses_[static_cast<std::size_t>(part)];
  return figures;
}

}  // namespace halotap::pipeline
