// Latencies as JSON.
#pragma once

#include <array>
#include <chrono>
#include <nlohmann/json.hpp>

#include "halotap/pipeline/telemetry.hpp"

namespace halotap::apps {

// The one way in which times become microseconds: 99.327, not 99.32700000000001.
double microseconds(std::chrono::nanoseconds time);

// {"source": {"chunks": ..., "p50_us": ..., ..., "misses": ...}, ..., "whole": ...}, by LatencyPart; null for a part
// that no chunk went through.
nlohmann::ordered_json latency_json(const std::array<pipeline::LatencyFigures, pipeline::kLatencyParts>& latency);

}  // namespace halotap::apps
