// What a test that holds for every backend runs over.
#pragma once

#include <vector>

#include "halotap/pipeline/engine.hpp"
#include "pipeline/test_model.hpp"

namespace halotap::test {

// Those of this build and machine.
inline std::vector<pipeline::Backend> backends() {
  std::vector<pipeline::Backend> there;
  for (const pipeline::Backend backend : {pipeline::Backend::kCpu, pipeline::Backend::kCuda}) {
    try {
      pipeline::Engine().prepare(lookahead_model(1), {.backend = backend});
      there.push_back(backend);
    } catch (const pipeline::DeviceError&) {
    }
  }
  return there;
}

}  // namespace halotap::test
