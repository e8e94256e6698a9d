// `halotap run`: runs a pipeline file in real time.
#pragma once

#include "command.hpp"

namespace halotap::apps {

void add_run(CLI::App& app, Command& chosen);

}  // namespace halotap::apps
