// Ctrl-C as a request instead of an end.
#pragma once

#include <atomic>

namespace halotap::apps {

// From now on the first SIGINT, SIGTERM or SIGHUP sets the flag returned, if it is not ignored; the second ends the
// process as usual, for somebody who cannot wait or a read that does not return.
const std::atomic<bool>* watch_for_interrupt();

// Makes a closed pipe and a file grown past its limit errors that the write reports, in place of signals that kill.
void report_failed_writes_as_errors();

}  // namespace halotap::apps
