// What a device has played, as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "halotap/io/sink.hpp"

namespace halotap::apps {

nlohmann::ordered_json played_json(const io::PlayedCounters& played);

}  // namespace halotap::apps
