// Checks of whole messages.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "scratch_folder.hpp"

namespace halotap::test {

// The message of the `Expected` exception that `call` throws, which must be one line. The scratch folder's path is cut
// out, so that a test can compare whole messages.
template <typename Expected, typename Call>
std::string refusal(const ScratchFolder& folder, Call call) {
  try {
    call();
  } catch (const Expected& error) {
    std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    const std::string prefix = folder.path().string() + "/";
    for (std::size_t at = message.find(prefix); at != std::string::npos; at = message.find(prefix)) {
      message.erase(at, prefix.size());
    }
    return message;
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

}  // namespace halotap::test
