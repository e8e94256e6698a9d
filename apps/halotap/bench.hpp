// `halotap bench block` and `halotap bench stack`: measure the engine on random weights or a model file.
#pragma once

#include "command.hpp"

namespace halotap::apps {

void add_bench(CLI::App& app, Command& chosen);

}  // namespace halotap::apps
