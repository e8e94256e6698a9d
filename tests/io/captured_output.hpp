// What goes to standard output.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

namespace halotap::io {

// Leads descriptor 1 into a pipe while it lives. For what fits in one (64 KiB).
class CapturedOutput {
 public:
  CapturedOutput() {
    std::fflush(stdout);
    saved_ = dup(STDOUT_FILENO);
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    read_end_ = ends[0];
    EXPECT_EQ(fcntl(read_end_, F_SETFL, O_NONBLOCK), 0);
    EXPECT_GE(dup2(ends[1], STDOUT_FILENO), 0);
    close(ends[1]);
  }
  ~CapturedOutput() {
    dup2(saved_, STDOUT_FILENO);
    close(saved_);
    close(read_end_);
  }
  CapturedOutput(const CapturedOutput&) = delete;
  CapturedOutput& operator=(const CapturedOutput&) = delete;

  // What came since the last call.
  std::string take() {
    std::string text(1 << 16, '\0');
    const ssize_t count = read(read_end_, text.data(), text.size());
    text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return text;
  }

 private:
  int saved_ = -1;
  int read_end_ = -1;
};

}  // namespace halotap::io
