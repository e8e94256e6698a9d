// libsndfile's words inside our messages.
#pragma once

#include <sndfile.h>

#include <string>

namespace halotap::io {

// Why `handle`'s last call failed (null: why opening failed), without the full stop and line breaks: it becomes the end
// of one line.
inline std::string reason_of(SNDFILE* handle) {
  std::string reason = sf_strerror(handle);
  for (char& letter : reason) {
    letter = letter == '\n' ? ' ' : letter;
  }
  while (!reason.empty() && (reason.back() == '.' || reason.back() == ' ')) {
    reason.pop_back();
  }
  return reason;
}

}  // namespace halotap::io
