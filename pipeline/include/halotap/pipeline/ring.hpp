// The queue of frames between the one thread that delivers and the one that takes.
#pragma once

#include <cstdint>
#include <memory>

#include "halotap/kernels/annotations.hpp"

namespace halotap::pipeline {

// A fixed-size single-producer single-consumer queue of whole frames, samples interleaved. Nothing allocates after
// construction.
class Ring {
 public:
  // Both at least 1. [control]
  Ring(std::int64_t frame_samples, std::int64_t capacity_frames);
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // [producer]
  std::int64_t writable_frames() const noexcept HALOTAP_NONBLOCKING;
  // At most writable_frames(). [producer]
  void push(const float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING;
  // [consumer]
  std::int64_t readable_frames() const noexcept HALOTAP_NONBLOCKING;
  // At most readable_frames(). [consumer]
  void pop(float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace halotap::pipeline
