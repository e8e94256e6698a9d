#include "interrupt.hpp"

#include <csignal>

namespace halotap::apps {
namespace {

// Written by the handler, read by the session. Relaxed: it carries no data with it.
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may touch lock-free atomics only");

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

extern "C" void handle_interrupt(int) {
  interrupted.store(true, std::memory_order_relaxed);
  for (const int number : kSignals) std::signal(number, SIG_DFL);
}

}  // namespace

const std::atomic<bool>* watch_for_interrupt() {
  struct sigaction action {};
  action.sa_handler = handle_interrupt;
  action.sa_flags = SA_RESTART;  // a read under way is not cut into an error
  sigemptyset(&action.sa_mask);
  for (const int number : kSignals) {
    struct sigaction before {};
    sigaction(number, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(number, &action, nullptr);  // as under nohup
  }
  return &interrupted;
}

void report_failed_writes_as_errors() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace halotap::apps
