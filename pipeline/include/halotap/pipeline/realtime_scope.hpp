// A thread's scheduling, changed for a while.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "halotap/pipeline/realtime_spec.hpp"

namespace halotap::pipeline {

// What the system granted of what was asked for.
struct RealtimeGrant {
  int priority = 0;       // of SCHED_FIFO; 0: none
  std::vector<int> cpus;  // empty: wherever the system likes
  bool memory_locked = false;
  std::vector<std::string> refusals;  // one line each: what, why and how to allow it
};

// Asks the system for what `spec` asks for, for the calling thread; puts everything back when destroyed, on the same
// thread. What is refused stays as it was, and `on_note` hears why in one line. Threads that this one starts meanwhile
// get its processors and its priority. Memory stays locked when some was before: who locked it still counts on it.
// [control]
class RealtimeScope {
 public:
  RealtimeScope(const RealtimeSpec& spec, const std::function<void(const std::string&)>& on_note);
  ~RealtimeScope();
  RealtimeScope(const RealtimeScope&) = delete;
  RealtimeScope& operator=(const RealtimeScope&) = delete;

  const RealtimeGrant& grant() const { return grant_; }

 private:
  struct Scheduling {
    int policy = 0;
    int priority = 0;
  };

  void take_cpus(const std::vector<int>& cpus);
  void take_priority(int priority);
  void lock_memory();
  void refuse(const std::string& what, const std::string& why, const std::string& remedy);

  const std::function<void(const std::string&)>& on_note_;
  RealtimeGrant grant_;
  std::vector<int> cpus_before_;                 // to put back; empty: nothing was changed
  std::optional<Scheduling> scheduling_before_;  // likewise
  bool unlocks_ = false;
};

}  // namespace halotap::pipeline
