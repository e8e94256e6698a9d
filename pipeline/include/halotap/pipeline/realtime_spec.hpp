// How the thread that computes is to be scheduled.
#pragma once

#include <vector>

namespace halotap::pipeline {

// Whatever is left at its default is left as it is.
struct RealtimeSpec {
  int priority = 0;            // of SCHED_FIFO, 1 to 99; 0: not asked for
  std::vector<int> cpus = {};  // processors, from 0, that the thread may run on; empty: not asked for
  bool lock_memory = false;    // keeps all memory that the program has when the run begins out of reach of paging

  bool asks() const { return priority != 0 || !cpus.empty() || lock_memory; }
};

}  // namespace halotap::pipeline
