// A thread's scheduling, changed for a while.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <sched.h>

#include "halotap/io/realtime.hpp"
#include "halotap/pipeline/realtime_spec.hpp"

namespace halotap::io {

// Asks the system for what `spec` asks for, for the calling thread; puts everything back when destroyed, on the same
// thread. What is refused stays as it was, and `on_note` hears why in one line. Threads that this one starts meanwhile
// get its processors and its priority. Memory stays locked when some was before: who locked it still counts on it.
// [control]
class RealtimeScope {
 public:
  RealtimeScope(const pipeline::RealtimeSpec& spec, const std::function<void(const std::string&)>& on_note);
  ~RealtimeScope();
  RealtimeScope(const RealtimeScope&) = delete;
  RealtimeScope& operator=(const RealtimeScope&) = delete;

  const RealtimeGrant& grant() const { return grant_; }

 private:
  struct Scheduling {
    int policy = 0;
    sched_param parameters{};
  };

  void take_cpus(const std::vector<int>& cpus);
  void take_priority(int priority);
  void lock_memory();
  void refuse(const std::string& what, const std::string& why, const std::string& remedy);

  const std::function<void(const std::string&)>& on_note_;
  RealtimeGrant grant_;
  std::optional<cpu_set_t> cpus_before_;         // to put back
  std::optional<Scheduling> scheduling_before_;  // likewise
  bool unlocks_ = false;
};

}  // namespace halotap::io
