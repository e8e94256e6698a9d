// What every command shares: how it joins the command line and how it ends.
#pragma once

#include <functional>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}

namespace halotap::apps {

// What a caller of the program can rely on.
enum class ExitCode : int {
  kDone = 0,          // also when the user stopped it
  kCheckFailed = 1,   // a comparison was made and did not hold, or a latency budget was missed where that ends a run
  kBadInput = 2,      // usage, configuration or data
  kDeviceFailed = 3,  // a device or backend is missing or failed
};

// The work that the command line asked for. Each command's `add_...` adds its options to `app` and, when the user names
// the command, puts its work here; main runs it once everything has been parsed.
using Command = std::function<ExitCode()>;

}  // namespace halotap::apps
