// A test that needs a card: without one it says that it was skipped.
#pragma once

#include <gtest/gtest.h>

#include "cuda/device.hpp"
#include "halotap/kernels/executor.hpp"

namespace halotap::kernels::cuda {

class OnACard : public testing::Test {
 protected:
  void SetUp() override {
    try {
      require_device();
    } catch (const BackendUnavailable& why) {
      GTEST_SKIP() << why.what();
    }
  }
};

}  // namespace halotap::kernels::cuda
