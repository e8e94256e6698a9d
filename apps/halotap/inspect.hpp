// `halotap inspect`: shows what a model is and costs.
#pragma once

#include "command.hpp"

namespace halotap::apps {

void add_inspect(CLI::App& app, Command& chosen);

}  // namespace halotap::apps
