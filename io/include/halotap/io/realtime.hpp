// What the system grants to threads, and which there are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace halotap::io {

// What the system granted of what was asked for (pipeline/realtime_spec.hpp).
struct RealtimeGrant {
  int priority = 0;       // of SCHED_FIFO; 0: none
  std::vector<int> cpus;  // empty: wherever the system likes
  bool memory_locked = false;
  std::vector<std::string> refusals;  // one line each: what, why and how to allow it
};

struct ThreadInfo {
  std::string name;     // "halotap-session"; at most 15 characters, as the system has it
  std::int64_t id = 0;  // the system's, as `ps -L` shows it
};

// halotap's threads in this program, in order of their ids: halotap-session (who runs a session, while it runs),
// halotap-keeper (keeps a sound device running), halotap-device (what the sound library made for that, the thread that
// calls back too; it may name them otherwise), halotap-record (writes a recording), halotap-engine (a worker of an
// engine), halotap-devices (looks for devices), halotap-status (tells of a run).
// Reads /proc: empty where there is none. Allocates; nothing for a loop with a deadline. [any thread]
std::vector<ThreadInfo> threads();

}  // namespace halotap::io
