// `halotap bench block` and `halotap bench stack`: measure the engine on a model of random weights.
#pragma once

#include "command.hpp"

namespace halotap::apps {

void add_bench(CLI::App& app, Command& chosen);

}  // namespace halotap::apps
