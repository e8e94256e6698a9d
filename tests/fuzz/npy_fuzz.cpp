// Any bytes as an .npy file: refused by DataError, or read to the end.
#include "memory_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  halotap::fuzz::read_as("npy", data, size);
  return 0;
}
