// The name of the calling thread, as the system shows it.
#pragma once

#include <pthread.h>

#include <array>
#include <thread>

namespace halotap::io {

// Gives the calling thread a name, of at most 15 characters, for as long as it runs.
inline void name_this_thread(const char* name) noexcept { pthread_setname_np(pthread_self(), name); }

// Gives a thread that was just started a name, which it has when this returns.
inline void name_thread(std::thread& thread, const char* name) noexcept {
  pthread_setname_np(thread.native_handle(), name);
}

// Gives the calling thread one for a while: the thread is somebody else's, who gets it back as it was. Made and
// destroyed on it.
class BorrowedThreadName {
 public:
  explicit BorrowedThreadName(const char* name) noexcept {
    pthread_getname_np(pthread_self(), before_.data(), before_.size());
    name_this_thread(name);
  }
  ~BorrowedThreadName() { name_this_thread(before_.data()); }
  BorrowedThreadName(const BorrowedThreadName&) = delete;
  BorrowedThreadName& operator=(const BorrowedThreadName&) = delete;

 private:
  std::array<char, 16> before_{};
};

}  // namespace halotap::io
