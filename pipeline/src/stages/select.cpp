#include <iterator>

#include "halotap/pipeline/built_in_stages.hpp"
#include "stages/stage_fault.hpp"
#include "stages/stage_values.hpp"

namespace halotap::pipeline {
namespace {

class Select final : public Stage {
 public:
  explicit Select(SelectSpec spec) : spec_(std::move(spec)) {}

  StageOutput prepare(const StageFormat& input) override {
    StageOutput output;
    output.channels = static_cast<std::int64_t>(spec_.channels.size());
    std::vector<std::int64_t> numbers;
    for (const std::string& channel : spec_.channels) {
      numbers.push_back(channel_number("channels", channel, input));
      if (!input.channel_names.empty()) {
        output.channel_names.push_back(input.channel_names[static_cast<std::size_t>(numbers.back())]);
      }
    }
    for (std::int64_t stream = 0; stream < input.streams; ++stream) {
      for (const std::int64_t number : numbers) {
        from_.push_back(static_cast<std::size_t>(stream * input.channels + number));
      }
    }
    return output;
  }

  bool process(const float* frame, float* result, EventList&) noexcept HALOTAP_NONBLOCKING override {
    for (std::size_t i = 0; i < from_.size(); ++i) result[i] = frame[from_[i]];
    return true;
  }

  void reset() noexcept HALOTAP_NONBLOCKING override {}

 private:
  SelectSpec spec_;
  std::vector<std::size_t> from_;  // where each sample of the result is in the frame
};

}  // namespace

StageMaker select_stage(const SelectSpec& spec) {
  if (spec.channels.empty() || std::ssize(spec.channels) > kMaxSelectedChannels) {
    throw StageFault("channels", "1 to " + std::to_string(kMaxSelectedChannels) + " channels",
                     std::to_string(spec.channels.size()));
  }
  return [spec] { return std::make_unique<Select>(spec); };
}

}  // namespace halotap::pipeline
