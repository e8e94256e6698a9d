// When late chunks are an overload, and when it is over.
#pragma once

#include <cstdint>

#include "halotap/kernels/annotations.hpp"

namespace halotap::pipeline {

// Acts from `miss_after` late chunks on end until `recover_after` chunks on end are on time, so that one hiccup is no
// overload and one good chunk no recovery. One thread. [worker]
class MissWatch {
 public:
  // Both at least 1.
  MissWatch(std::int64_t miss_after, std::int64_t recover_after)
      : miss_after_(miss_after), recover_after_(recover_after) {}

  // The next chunk was late, or on time.
  void record(bool late) noexcept HALOTAP_NONBLOCKING {
    against_ = late == acts_ ? 0 : against_ + 1;
    if (against_ < (acts_ ? recover_after_ : miss_after_)) return;
    acts_ = !acts_;
    against_ = 0;
  }

  bool acts() const noexcept HALOTAP_NONBLOCKING { return acts_; }

 private:
  std::int64_t miss_after_;
  std::int64_t recover_after_;
  std::int64_t against_ = 0;  // chunks on end that speak against what holds now
  bool acts_ = false;
};

}  // namespace halotap::pipeline
