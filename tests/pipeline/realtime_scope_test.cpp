#include "halotap/pipeline/realtime_scope.hpp"

#include <grp.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <iostream>
#include <thread>

namespace halotap::pipeline {
namespace {

constexpr uid_t kNobody = 65534;

int policy() { return sched_getscheduler(0); }

int priority() {
  sched_param parameters{};
  sched_getparam(0, &parameters);
  return parameters.sched_priority;
}

std::vector<int> cpus() {
  cpu_set_t set;
  pthread_getaffinity_np(pthread_self(), sizeof(set), &set);
  std::vector<int> result;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) result.push_back(cpu);
  }
  return result;
}

std::int64_t locked_kilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::int64_t kilobytes = 0;
    if (word == "VmLck:" && status >> kilobytes) return kilobytes;
  }
  return -1;
}

// A page that is locked while it lives.
class LockedPage {
 public:
  LockedPage() { mlock(page_, kBytes); }
  ~LockedPage() {
    munlock(page_, kBytes);
    munmap(page_, kBytes);
  }
  LockedPage(const LockedPage&) = delete;
  LockedPage& operator=(const LockedPage&) = delete;

 private:
  static constexpr std::size_t kBytes = 4096;
  void* const page_ = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
};

// AddressSanitizer and ThreadSanitizer take calls that lock memory, and do nothing.
bool locks_memory() {
  const std::int64_t before = locked_kilobytes();
  const LockedPage page;
  return locked_kilobytes() > before;
}

enum class Verdict { kHolds, kFails, kNotAllowed };

// Whether `body` holds in a process of its own, as a user without privileges and with these limits, which only some may
// raise.
template <typename Body>
Verdict without_privileges(rlim_t most_priority, rlim_t most_locked_bytes, Body body) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit priorities{most_priority, most_priority};
    const rlimit locked{most_locked_bytes, most_locked_bytes};
    const bool limited = setrlimit(RLIMIT_RTPRIO, &priorities) == 0 && setrlimit(RLIMIT_MEMLOCK, &locked) == 0;
    const bool unprivileged =
        geteuid() != 0 || (setgroups(0, nullptr) == 0 && setgid(kNobody) == 0 && setuid(kNobody) == 0);
    _exit(static_cast<int>(!limited || !unprivileged ? Verdict::kNotAllowed
                           : body()                  ? Verdict::kHolds
                                                     : Verdict::kFails));
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  return static_cast<Verdict>(WEXITSTATUS(status));
}

bool has(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (text.find(word) != std::string::npos) continue;
    std::cerr << "no '" << word << "' in: " << text << '\n';
    return false;
  }
  return true;
}

// As root all of it is granted; elsewhere what is not leaves the thread as it was.
TEST(RealtimeScope, PutsTheThreadBackAsItWas) {
  std::thread([] {
    const std::vector<int> cpus_before = cpus();
    const std::int64_t locked_before = locked_kilobytes();
    std::vector<std::string> notes;
    const std::function<void(const std::string&)> on_note = [&](const std::string& note) { notes.push_back(note); };
    {
      const RealtimeScope scope({.priority = 7, .cpus = {cpus_before.back()}, .lock_memory = true}, on_note);
      EXPECT_EQ(cpus(), std::vector<int>{cpus_before.back()});
      EXPECT_EQ(scope.grant().cpus, std::vector<int>{cpus_before.back()});
      const bool granted = scope.grant().priority == 7;
      EXPECT_EQ(policy(), granted ? SCHED_FIFO : SCHED_OTHER);
      EXPECT_EQ(priority(), granted ? 7 : 0);
      EXPECT_EQ(locked_kilobytes() > locked_before, scope.grant().memory_locked && locks_memory());
      EXPECT_EQ(notes.size(), (granted ? 0U : 1U) + (scope.grant().memory_locked ? 0U : 1U));
      EXPECT_EQ(notes, scope.grant().refusals);
    }
    EXPECT_EQ(policy(), SCHED_OTHER);
    EXPECT_EQ(priority(), 0);
    EXPECT_EQ(cpus(), cpus_before);
    EXPECT_EQ(locked_kilobytes(), locked_before);
  }).join();
}

TEST(RealtimeScope, ChangesNothingUnasked) {
  std::thread([] {
    const std::vector<int> cpus_before = cpus();
    const RealtimeScope scope({}, {});
    EXPECT_EQ(policy(), SCHED_OTHER);
    EXPECT_EQ(cpus(), cpus_before);
    EXPECT_TRUE(scope.grant().refusals.empty());
  }).join();
}

TEST(RealtimeScope, LeavesMemoryLockedThatWasBefore) {
  const LockedPage page;
  const std::int64_t locked = locked_kilobytes();
  { const RealtimeScope scope({.lock_memory = true}, {}); }
  EXPECT_GE(locked_kilobytes(), locked);
  munlockall();
}

TEST(RealtimeScope, RefusesProcessorsThatAreNotThere) {
  std::thread([] {
    const std::vector<int> before = cpus();
    for (const std::vector<int>& wanted :
         {std::vector<int>{1023}, std::vector<int>{before.front(), 1023}, std::vector<int>{5000}, {-1}}) {
      const RealtimeScope scope({.cpus = wanted}, {});
      ASSERT_EQ(scope.grant().refusals.size(), 1U);
      EXPECT_TRUE(
          has(scope.grant().refusals[0], {"realtime.cpus: ", std::to_string(wanted.back()), "not all of them are there",
                                          "goes on without", "may run on " + std::to_string(before.front())}));
      EXPECT_TRUE(scope.grant().cpus.empty());
      EXPECT_EQ(cpus(), before);
    }
  }).join();
}

TEST(RealtimeScope, SaysWhatWasRefusedWhyAndHowToAllowIt) {
  const bool locks = locks_memory();
  const Verdict verdict = without_privileges(0, 65536, [locks] {
    std::vector<std::string> notes;
    const std::function<void(const std::string&)> on_note = [&](const std::string& note) { notes.push_back(note); };
    const RealtimeScope scope({.priority = 80, .lock_memory = true}, on_note);
    if (policy() != SCHED_OTHER || scope.grant().priority != 0 || notes.size() != (locks ? 2 : 1)) return false;
    return has(notes[0], {"realtime.priority: 80: refused: Operation not permitted (ulimit -r allows 0)",
                          "the run goes on without it", "'- rtprio 80'", "limits.conf"}) &&
           (!locks || (!scope.grant().memory_locked &&
                       has(notes[1], {"realtime.lock_memory: true: refused: Cannot allocate memory",
                                      " MB mapped, ulimit -l allows", "'- memlock unlimited'", "limits.conf"})));
  });
  EXPECT_EQ(verdict, Verdict::kHolds);
}

TEST(RealtimeScope, NeedsNoPrivilegeWhereTheLimitAllows) {
  const Verdict verdict = without_privileges(20, 65536, [] {
    bool granted = false;
    {
      const RealtimeScope scope({.priority = 20}, {});
      granted = policy() == SCHED_FIFO && priority() == 20;
    }
    return granted && policy() == SCHED_OTHER;
  });
  if (verdict == Verdict::kNotAllowed) GTEST_SKIP() << "this user may not raise the limit";
  EXPECT_EQ(verdict, Verdict::kHolds);
}

}  // namespace
}  // namespace halotap::pipeline
