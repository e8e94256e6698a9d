#include "latency_json.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace halotap::apps {

double microseconds(std::chrono::nanoseconds time) { return static_cast<double>(time.count()) / 1e3; }

nlohmann::ordered_json latency_json(const std::array<pipeline::LatencyFigures, pipeline::kLatencyParts>& latency) {
  const auto told_us = [](std::int64_t time_ns) { return microseconds(std::chrono::nanoseconds(time_ns)); };
  nlohmann::ordered_json json;
  for (std::size_t i = 0; i < latency.size(); ++i) {
    const pipeline::LatencyFigures& part = latency[i];
    nlohmann::ordered_json& told = json[std::string(to_string(static_cast<pipeline::LatencyPart>(i)))];
    if (part.chunks == 0) continue;
    told["chunks"] = part.chunks;
    told["p50_us"] = told_us(part.p50_ns);
    told["p99_us"] = told_us(part.p99_ns);
    told["p999_us"] = told_us(part.p999_ns);
    told["max_us"] = told_us(part.max_ns);
    told["misses"] = part.misses;
  }
  return json;
}

}  // namespace halotap::apps
