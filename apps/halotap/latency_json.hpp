// Latencies as JSON.
#pragma once

#include <array>
#include <nlohmann/json.hpp>

#include "halotap/pipeline/telemetry.hpp"

namespace halotap::apps {

// {"source": {"chunks": ..., "p50_us": ..., ..., "misses": ...}, ..., "whole": ...}, by LatencyPart; null for a part
// that no chunk went through.
nlohmann::ordered_json latency_json(const std::array<pipeline::LatencyFigures, pipeline::kLatencyParts>& latency);

}  // namespace halotap::apps
