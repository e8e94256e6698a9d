// Checks of one-line messages.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace halotap::io {

// Expects `action` to throw Error with a message of one line that holds every one of `parts`.
template <typename Error, typename Action>
void expect_error(Action action, const std::vector<std::string>& parts) {
  try {
    action();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    for (const std::string& part : parts) {
      EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' is not in: " << message;
    }
  }
}

}  // namespace halotap::io
