// `halotap verify`: compares what the engine computes with an expected result.
#pragma once

#include "command.hpp"

namespace halotap::apps {

void add_verify(CLI::App& app, Command& chosen);

}  // namespace halotap::apps
