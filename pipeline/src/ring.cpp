#include "halotap/pipeline/ring.hpp"

#include <boost/lockfree/spsc_queue.hpp>
#include <cstddef>

namespace halotap::pipeline {

// Boost's queue moves single floats and its bulk push stops where the space ends, possibly inside a frame, so both
// sides look at the space first: it can only grow under the producer's feet, and the contents only under the
// consumer's.
struct Ring::Impl {
  Impl(std::size_t samples, std::size_t capacity_frames) : frame_samples(samples), queue(samples * capacity_frames) {}

  std::size_t frame_samples;
  boost::lockfree::spsc_queue<float> queue;
};

Ring::Ring(std::int64_t frame_samples, std::int64_t capacity_frames)
    : impl_(
          std::make_unique<Impl>(static_cast<std::size_t>(frame_samples), static_cast<std::size_t>(capacity_frames))) {}
Ring::~Ring() = default;

std::int64_t Ring::writable_frames() const noexcept HALOTAP_NONBLOCKING {
  return static_cast<std::int64_t>(impl_->queue.write_available() / impl_->frame_samples);
}

void Ring::push(const float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING {
  impl_->queue.push(samples, static_cast<std::size_t>(frames) * impl_->frame_samples);
}

std::int64_t Ring::readable_frames() const noexcept HALOTAP_NONBLOCKING {
  return static_cast<std::int64_t>(impl_->queue.read_available() / impl_->frame_samples);
}

void Ring::pop(float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING {
  impl_->queue.pop(samples, static_cast<std::size_t>(frames) * impl_->frame_samples);
}

}  // namespace halotap::pipeline
