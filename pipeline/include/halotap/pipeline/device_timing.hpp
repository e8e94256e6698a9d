// How fast a model's kernels are on the card alone.
#pragma once

#include <optional>
#include <string_view>

#include "halotap/kernels/device_timing.hpp"
#include "halotap/pipeline/model.hpp"

namespace halotap::pipeline {

using kernels::DeviceTiming;
using kernels::DeviceTimingSpec;
using kernels::SampleType;

// "fp32", "bf16" and "fp16"; nothing for another word. [any thread]
std::string_view to_string(SampleType samples);
std::optional<SampleType> parse_sample_type(std::string_view word);

// As kernels::time_on_device, for a model. Throws ConfigError for a spec out of range, layers that the kernels do not
// take or more memory than the card has, and DeviceError when the CUDA backend is not there. [control]
DeviceTiming time_on_device(const Model& model, const DeviceTimingSpec& spec);

}  // namespace halotap::pipeline
