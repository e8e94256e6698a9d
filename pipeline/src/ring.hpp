// The queue of frames between the producer and the worker.
#pragma once

#include <boost/lockfree/spsc_queue.hpp>
#include <cstddef>
#include <cstdint>

#include "halotap/kernels/annotations.hpp"

namespace halotap::pipeline {

// A fixed-size single-producer single-consumer queue of whole frames, samples interleaved. Boost's queue moves single
// floats and its bulk push stops where the space ends, possibly inside a frame, so both sides look at the space first:
// it can only grow under the producer's feet, and the contents only under the consumer's.
class Ring {
 public:
  Ring(std::int64_t frame_samples, std::int64_t capacity_frames)
      : frame_samples_(static_cast<std::size_t>(frame_samples)),
        queue_(frame_samples_ * static_cast<std::size_t>(capacity_frames)) {}

  // [producer]
  std::int64_t writable_frames() const noexcept HALOTAP_NONBLOCKING {
    return static_cast<std::int64_t>(queue_.write_available() / frame_samples_);
  }
  // At most writable_frames(). [producer]
  void push(const float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING {
    queue_.push(samples, static_cast<std::size_t>(frames) * frame_samples_);
  }
  // [consumer]
  std::int64_t readable_frames() const noexcept HALOTAP_NONBLOCKING {
    return static_cast<std::int64_t>(queue_.read_available() / frame_samples_);
  }
  // At most readable_frames(). [consumer]
  void pop(float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING {
    queue_.pop(samples, static_cast<std::size_t>(frames) * frame_samples_);
  }

 private:
  std::size_t frame_samples_;
  boost::lockfree::spsc_queue<float> queue_;
};

}  // namespace halotap::pipeline
