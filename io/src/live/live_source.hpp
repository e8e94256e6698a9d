// A source whose frames a device delivers when it likes.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "halotap/io/source.hpp"
#include "live/capture.hpp"
#include "live/device_keeper.hpp"

namespace halotap::io {

// How long frames may wait in the ring until it is looked into; `block_time` as below.
std::chrono::nanoseconds look_pause(std::chrono::duration<double> block_time);
// The same as a term of latency.
pipeline::LatencyTerm ring_latency(std::chrono::duration<double> block_time);

// Reads what `capture` gets from the device behind `keeper`. `block_time`: about how long a block of the device is.
class LiveSource final : public Source {
 public:
  LiveSource(SourceInfo info, std::shared_ptr<Capture> capture, std::unique_ptr<DeviceKeeper> keeper, std::string name,
             std::chrono::duration<double> block_time);

  const SourceInfo& info() const override { return info_; }
  using Source::read;
  std::int64_t read(float* samples, std::int64_t frames) override;
  Gap take_gap() override { return capture_->take_gap(); }
  std::optional<pipeline::Instant> capture_time() const override;
  Waiting waiting() const override { return {capture_->waiting_frames(), capture_->capacity_frames()}; }

 private:
  void check_rate() const;

  SourceInfo info_;
  std::shared_ptr<Capture> capture_;
  std::unique_ptr<DeviceKeeper> keeper_;
  std::string name_;
  std::chrono::nanoseconds pause_;
  bool has_read_ = false;
};

}  // namespace halotap::io
