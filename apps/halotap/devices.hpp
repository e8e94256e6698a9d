// `halotap devices`: what sound can come from and go to, and what can compute.
#pragma once

#include "command.hpp"

namespace halotap::apps {

void add_devices(CLI::App& app, Command& chosen);

}  // namespace halotap::apps
