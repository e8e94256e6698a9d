// Any bytes as a safetensors file: opened, and every tensor read, or refused with a ModelError.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "halotap/pipeline/errors.hpp"
#include "safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const int descriptor = memfd_create("fuzz", MFD_CLOEXEC);
  if (descriptor < 0 || write(descriptor, data, size) != static_cast<ssize_t>(size)) std::abort();
  try {
    const halotap::pipeline::SafetensorsFile file("/proc/self/fd/" + std::to_string(descriptor));
    for (const auto& [name, entry] : file.tensors()) {
      try {
        file.read(name);
      } catch (const halotap::pipeline::ModelError&) {
        continue;
      }
    }
  } catch (const halotap::pipeline::ModelError&) {
  }
  close(descriptor);
  return 0;
}
