#include "cuda/injected_failure.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "cuda/host_pass_device.hpp"
#include "cuda/pass_executor.hpp"
#include "random_stack.hpp"

namespace halotap::kernels::cuda {
namespace {

std::int64_t now = 0;
std::int64_t tick() noexcept { return now += 1'000'000; }

struct InjectedFailure : testing::Test {
  ~InjectedFailure() override { unsetenv(kInjectedFailure); }

  std::unique_ptr<PassDevice> device(const char* value) {
    if (value != nullptr) setenv(kInjectedFailure, value, 1);
    return with_injected_failure(std::make_unique<HostPassDevice>(stack, shape), shape, tick);
  }

  bool run(PassDevice& device) {
    const PassEntry entry{.frames = 1,
                          .fresh = true,
                          .input = device.input(0),
                          .output = device.output(0),
                          .in_stride = shape.in_stride,
                          .out_stride = shape.out_stride};
    std::fill_n(device.input(0), stack->in_channels() * shape.in_stride, 0.5F);
    return device.run({&entry, 1});
  }

  test::Random random{1};
  std::shared_ptr<const Stack> stack = test::draw_stack(random);
  PassShape shape = make_pass_shape(*stack, {1, 4});
};

TEST_F(InjectedFailure, LeavesADeviceAloneWhenNoneIsAskedFor) {
  const auto plain = device(nullptr);
  for (int pass = 0; pass < 10; ++pass) EXPECT_TRUE(run(*plain));
  EXPECT_EQ(plain->failure(), nullptr);
}

TEST_F(InjectedFailure, EndsTheDeviceForEverInThePassAskedFor) {
  const auto failing = device("error:3");
  for (int pass = 0; pass < 3; ++pass) EXPECT_TRUE(run(*failing)) << pass;
  EXPECT_EQ(failing->failure(), nullptr);
  for (int pass = 3; pass < 6; ++pass) EXPECT_FALSE(run(*failing)) << pass;
  EXPECT_STREQ(failing->failure(), "injected error");
  EXPECT_EQ(failing->description(), "host");
}

TEST_F(InjectedFailure, OfAHangIsNoticedOnceTheLimitHasPassed) {
  const auto hanging = device("hang:1");
  EXPECT_TRUE(run(*hanging));
  const std::int64_t begun = now;
  EXPECT_FALSE(run(*hanging));
  EXPECT_GT(now - begun, 100'000'000);
  EXPECT_EQ(std::string(hanging->failure()), "no answer within 100 ms (injected)");
  EXPECT_FALSE(hanging->is_silent()) << "the device beneath is well, and may be destroyed";
}

TEST_F(InjectedFailure, RefusesWhatIsNeitherAnErrorNorAHangInSomePass) {
  for (const char* value : {"", "3", "error", "error:", "error:0", "error:-1", "hang:1x", "crash:1", "hang: 1"}) {
    try {
      device(value);
      ADD_FAILURE() << value;
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(std::string(error.what()),
                "HALOTAP_INJECT_DEVICE_FAILURE: expected error:N or hang:N with a pass N from "
                "1, got '" +
                    std::string(value) + "'");
    }
  }
}

// A device that does not answer, and says so when it is destroyed.
class SilentDevice final : public PassDevice {
 public:
  SilentDevice(bool is_silent, int* destroyed) : is_silent_(is_silent), destroyed_(destroyed) {}
  ~SilentDevice() override { ++*destroyed_; }

  float* input(std::int64_t) noexcept override { return nullptr; }
  float* frame_to_hold(std::int64_t) noexcept override { return nullptr; }
  float* output(std::int64_t) noexcept override { return nullptr; }
  bool run(std::span<const PassEntry>) noexcept override { return false; }
  const char* failure() const noexcept override { return "silence"; }
  bool is_silent() const noexcept override { return is_silent_; }
  std::string description() const override { return "silent"; }

 private:
  bool is_silent_;
  int* destroyed_;
};

TEST_F(InjectedFailure, OrATrueOneWithoutAnAnswerIsNoReasonToWaitInADestructor) {
  int destroyed = 0;
  make_pass_executor(shape, std::make_unique<SilentDevice>(true, &destroyed)).reset();
  EXPECT_EQ(destroyed, 0);
  make_pass_executor(shape, std::make_unique<SilentDevice>(false, &destroyed)).reset();
  EXPECT_EQ(destroyed, 1);
}

}  // namespace
}  // namespace halotap::kernels::cuda
