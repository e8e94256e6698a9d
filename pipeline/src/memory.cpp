#include "memory.hpp"

#include <unistd.h>

#include <limits>

namespace halotap::pipeline {

double memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page_bytes <= 0) return std::numeric_limits<double>::infinity();
  return static_cast<double>(pages) * static_cast<double>(page_bytes);
}

}  // namespace halotap::pipeline
