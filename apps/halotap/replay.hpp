// `halotap replay`: plays a recording through a model into files.
#pragma once

#include "command.hpp"

namespace halotap::apps {

void add_replay(CLI::App& app, Command& chosen);

}  // namespace halotap::apps
