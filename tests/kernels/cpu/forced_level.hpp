#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace halotap::kernels {

// Forces a SIMD level for as long as it lives.
class ForcedLevel {
 public:
  explicit ForcedLevel(const char* level) {
    if (const char* before = std::getenv("HALOTAP_ISA")) before_ = before;
    setenv("HALOTAP_ISA", level, 1);
  }
  ~ForcedLevel() {
    if (before_) {
      setenv("HALOTAP_ISA", before_->c_str(), 1);
    } else {
      unsetenv("HALOTAP_ISA");
    }
  }

 private:
  std::optional<std::string> before_;
};

}  // namespace halotap::kernels
