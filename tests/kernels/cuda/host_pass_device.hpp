// Passes without a card: what CudaPassDevice does, step by step, with the layers computed in plain loops. Memory is
// poisoned with NaN wherever the real device would hold what an earlier pass left.
#pragma once

#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "cuda/pass.hpp"

namespace halotap::kernels::cuda {

class HostPassDevice final : public PassDevice {
 public:
  HostPassDevice(std::shared_ptr<const Stack> stack, const PassShape& shape);

  float* input(std::int64_t item) noexcept override;
  float* frame_to_hold(std::int64_t item) noexcept override;
  float* output(std::int64_t item) noexcept override;
  float* allocate_samples(std::int64_t count) override;
  bool run(std::span<const PassEntry> entries) noexcept override;
  const char* failure() const noexcept override { return passes_left_ == 0 ? "the test ended it" : nullptr; }
  std::string description() const override { return "host"; }

  // Makes the device fail after so many more passes.
  void fail_after(std::int64_t passes) { passes_left_ = passes; }

  // Has passes of so many equal entries count as faster.
  void go_in_lockstep(std::int64_t items) { lockstep_items_ = items; }
  std::int64_t lockstep_items() const noexcept override { return lockstep_items_; }

  // Calls of allocate_samples so far.
  std::int64_t allocations() const { return std::ssize(samples_); }

  // Entries of each pass so far.
  const std::vector<std::int64_t>& items_of_passes() const { return items_of_passes_; }
  // Entries so far whose input, and whose output, was staged.
  std::int64_t staged_inputs() const { return staged_inputs_; }
  std::int64_t staged_outputs() const { return staged_outputs_; }

 private:
  struct FreePages {
    void operator()(float* memory) const noexcept;
  };

  float* first_new_frame(std::size_t layer, std::int64_t item, std::int64_t channel);
  float* state(std::size_t layer, std::int64_t slot, std::int64_t channel);
  void run_layer(std::size_t layer, std::int64_t item, std::int64_t frames, RealFrames real);
  void start_hold(std::int64_t item);
  void begin(const PassEntry& entry, std::int64_t item);
  void end(const PassEntry& entry, std::int64_t item);

  std::shared_ptr<const Stack> stack_;
  PassShape shape_;
  std::vector<FoldedDepthwise> depthwise_;  // one a layer
  std::vector<float> input_;
  std::vector<float> frames_to_hold_;
  std::vector<float> output_;
  std::vector<std::unique_ptr<float[], FreePages>> samples_;
  std::vector<float> windows_;
  std::vector<float> state_;
  std::int64_t passes_left_ = -1;  // negative: no end
  std::int64_t lockstep_items_ = 0;
  std::vector<std::int64_t> items_of_passes_;
  std::int64_t staged_inputs_ = 0;
  std::int64_t staged_outputs_ = 0;
};

}  // namespace halotap::kernels::cuda
