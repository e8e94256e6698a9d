// What the system grants to threads, and which there are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "halotap/pipeline/realtime_scope.hpp"

namespace halotap::io {

using pipeline::RealtimeGrant;

struct ThreadInfo {
  std::string name;     // "halotap-session"; at most 15 characters, as the system has it
  std::int64_t id = 0;  // the system's, as `ps -L` shows it
};

// halotap's threads in this program, in order of their ids: halotap-session (who runs a session, while it runs),
// halotap-keeper (keeps a sound device running), halotap-device (what the sound library made for that, the thread that
// calls back too; it may name them otherwise), halotap-record (writes a recording), halotap-engine (a worker of an
// engine), halotap-async (the worker of an asynchronous one), halotap-devices (looks for devices), halotap-status
// (tells of a run).
// Reads /proc: empty where there is none. Allocates; nothing for a loop with a deadline. [any thread]
std::vector<ThreadInfo> threads();

}  // namespace halotap::io
