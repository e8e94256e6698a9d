// What PortAudio must not see of ALSA.
#pragma once

#include <string>

namespace halotap::io {

// Why PortAudio 19.6 cannot be initialised, in one line; empty when it can be. Where ALSA has no card and its
// configuration names no device, as when that is not installed, PortAudio's assertion would end the program; where the
// configuration cannot be read, it would print and give no reason. Not while PortAudio is initialised. [control]
std::string alsa_problem();

}  // namespace halotap::io
