#include "cuda/injected_failure.hpp"

#include <charconv>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "cuda/answer.hpp"

namespace halotap::kernels::cuda {
namespace {

struct Injected {
  bool hangs = false;
  std::int64_t pass = 0;
};

Injected parse(std::string_view text) {
  constexpr std::string_view kError = "error:";
  constexpr std::string_view kHang = "hang:";
  Injected injected;
  injected.hangs = text.starts_with(kHang);
  if (injected.hangs || text.starts_with(kError)) {
    const std::string_view number = text.substr(injected.hangs ? kHang.size() : kError.size());
    const char* end = number.data() + number.size();
    const auto [rest, error] = std::from_chars(number.data(), end, injected.pass);
    if (error == std::errc() && rest == end && injected.pass >= 1) return injected;
  }
  throw std::invalid_argument(std::string(kInjectedFailure) +
                              ": expected error:N or hang:N with a pass N from 1, got '" + std::string(text) + "'");
}

class FailingPassDevice final : public PassDevice {
 public:
  FailingPassDevice(std::unique_ptr<PassDevice> device, const PassShape& shape, NowNs now_ns, const Injected& injected)
      : device_(std::move(device)), shape_(shape), now_ns_(now_ns), injected_(injected) {}

  float* input(std::int64_t item) noexcept override { return device_->input(item); }
  float* frame_to_hold(std::int64_t item) noexcept override { return device_->frame_to_hold(item); }
  float* output(std::int64_t item) noexcept override { return device_->output(item); }
  float* allocate_samples(std::int64_t count) override { return device_->allocate_samples(count); }
  std::int64_t lockstep_items() const noexcept override { return device_->lockstep_items(); }

  bool run(std::span<const PassEntry> entries) noexcept override {
    if (failure_ != nullptr) return false;
    if (passes_++ < injected_.pass) return device_->run(entries);
    if (injected_.hangs) {
      const std::int64_t limit_ns = answer_limit_ns(shape_, entries);
      answers(now_ns_, limit_ns, [&] { return now_ns_ == nullptr; });
      failure_ = silence_.text(limit_ns, " (injected)");
    } else {
      failure_ = "injected error";
    }
    return false;
  }

  const char* failure() const noexcept override { return failure_ != nullptr ? failure_ : device_->failure(); }
  bool is_silent() const noexcept override { return device_->is_silent(); }
  std::string description() const override { return device_->description(); }

 private:
  const std::unique_ptr<PassDevice> device_;
  const PassShape shape_;
  const NowNs now_ns_;
  const Injected injected_;
  std::int64_t passes_ = 0;
  NoAnswer silence_;
  const char* failure_ = nullptr;
};

}  // namespace

std::unique_ptr<PassDevice> with_injected_failure(std::unique_ptr<PassDevice> device, const PassShape& shape,
                                                  NowNs now_ns) {
  const char* text = std::getenv(kInjectedFailure);
  if (text == nullptr) return device;
  return std::make_unique<FailingPassDevice>(std::move(device), shape, now_ns, parse(text));
}

}  // namespace halotap::kernels::cuda

namespace halotap::kernels {

bool check_injected_failure() {
  const char* text = std::getenv(cuda::kInjectedFailure);
  if (text == nullptr) return false;
  cuda::parse(text);
  return true;
}

}  // namespace halotap::kernels
