#include "halotap/pipeline/realtime_scope.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>

namespace halotap::pipeline {
namespace {

constexpr std::uint64_t kMegabyte = 1'000'000;

std::string list_of(const std::vector<int>& cpus) {
  std::string text;
  for (const int cpu : cpus) text += (text.empty() ? "" : ", ") + std::to_string(cpu);
  return text;
}

// Those that a set can hold.
cpu_set_t set_of(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) {
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  }
  return set;
}

std::vector<int> members_of(const cpu_set_t& set) {
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

std::string limit_text(int resource, std::uint64_t unit, const std::string& unit_name) {
  rlimit limit{};
  getrlimit(resource, &limit);
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur / unit) + unit_name;
}

// The process's whole address space: what locking counts against the limit.
std::uint64_t mapped_bytes() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

bool has_locked_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::uint64_t kilobytes = 0;
    if (word == "VmLck:") return status >> kilobytes && kilobytes > 0;
  }
  return false;
}

std::string in_limits_conf(const std::string& line) {
  return "put '" + line + "' for this user into /etc/security/limits.conf and log in again, or run as root";
}

}  // namespace

RealtimeScope::RealtimeScope(const RealtimeSpec& spec, const std::function<void(const std::string&)>& on_note)
    : on_note_(on_note) {
  // Processors first: the priority is then for where it is wanted.
  if (!spec.cpus.empty()) take_cpus(spec.cpus);
  if (spec.priority != 0) take_priority(spec.priority);
  if (spec.lock_memory) lock_memory();
}

RealtimeScope::~RealtimeScope() {
  if (unlocks_) munlockall();
  // Whatever had no privilege to go up again, or lost a processor meanwhile, is told.
  if (scheduling_before_) {
    sched_param before{};
    before.sched_priority = scheduling_before_->priority;
    if (sched_setscheduler(0, scheduling_before_->policy, &before) != 0 && on_note_) {
      on_note_("realtime.priority: cannot be put back: " + std::string(std::strerror(errno)));
    }
  }
  if (cpus_before_.empty()) return;
  const cpu_set_t before = set_of(cpus_before_);
  if (const int error = pthread_setaffinity_np(pthread_self(), sizeof(before), &before); error != 0 && on_note_) {
    on_note_("realtime.cpus: cannot be put back: " + std::string(std::strerror(error)));
  }
}

void RealtimeScope::take_cpus(const std::vector<int>& cpus) {
  const cpu_set_t wanted = set_of(cpus);
  cpu_set_t before;
  cpu_set_t got;
  const bool fits = std::all_of(cpus.begin(), cpus.end(), [](int cpu) { return cpu >= 0 && cpu < CPU_SETSIZE; });
  pthread_getaffinity_np(pthread_self(), sizeof(before), &before);
  int error = fits ? pthread_setaffinity_np(pthread_self(), sizeof(wanted), &wanted) : EINVAL;
  // The system takes a list of which only some exist, and says nothing.
  if (error == 0) {
    pthread_getaffinity_np(pthread_self(), sizeof(got), &got);
    if (!CPU_EQUAL(&got, &wanted)) {
      pthread_setaffinity_np(pthread_self(), sizeof(before), &before);
      error = EINVAL;
    }
  }
  if (error == 0) {
    cpus_before_ = members_of(before);
    grant_.cpus = members_of(wanted);
    return;
  }
  refuse("cpus: " + list_of(cpus),
         std::string(error == EINVAL ? "not all of them are there" : std::strerror(error)) +
             " (this thread may run on " + list_of(members_of(before)) + ")",
         "name others, or widen what taskset or the container's cpuset leaves to this program");
}

void RealtimeScope::take_priority(int priority) {
  sched_param parameters{};
  sched_getparam(0, &parameters);
  const Scheduling before{sched_getscheduler(0), parameters.sched_priority};
  sched_param wanted{};
  wanted.sched_priority = priority;
  // Without SCHED_RESET_ON_FORK: a thread that has no privilege could not take that back.
  if (sched_setscheduler(0, SCHED_FIFO, &wanted) == 0) {
    scheduling_before_ = before;
    grant_.priority = priority;
    return;
  }
  const int error = errno;
  refuse("priority: " + std::to_string(priority),
         std::string(std::strerror(error)) + " (ulimit -r allows " + limit_text(RLIMIT_RTPRIO, 1, "") + ")",
         in_limits_conf("- rtprio " + std::to_string(priority)));
}

void RealtimeScope::lock_memory() {
  const bool was_locked = has_locked_memory();
  // What is mapped from now on is not locked: past a limit, allocations of the whole program would fail.
  if (mlockall(MCL_CURRENT) == 0) {
    unlocks_ = !was_locked;
    grant_.memory_locked = true;
    return;
  }
  const int error = errno;
  refuse("lock_memory: true",
         std::string(std::strerror(error)) + " (the program has " + std::to_string(mapped_bytes() / kMegabyte) +
             " MB mapped, ulimit -l allows " + limit_text(RLIMIT_MEMLOCK, kMegabyte, " MB") + ")",
         in_limits_conf("- memlock unlimited"));
}

void RealtimeScope::refuse(const std::string& what, const std::string& why, const std::string& remedy) {
  grant_.refusals.push_back("realtime." + what + ": refused: " + why + "; the run goes on without it; to allow it, " +
                            remedy);
  if (on_note_) on_note_(grant_.refusals.back());
}

}  // namespace halotap::pipeline
