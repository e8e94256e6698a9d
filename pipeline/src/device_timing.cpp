#include "halotap/pipeline/device_timing.hpp"

#include <array>
#include <new>
#include <stdexcept>
#include <utility>

#include "halotap/kernels/names.hpp"
#include "halotap/pipeline/errors.hpp"

namespace halotap::pipeline {
namespace {

constexpr std::array kSampleNames{std::pair{SampleType::kFloat32, std::string_view{"fp32"}},
                                  std::pair{SampleType::kBfloat16, std::string_view{"bf16"}},
                                  std::pair{SampleType::kFloat16, std::string_view{"fp16"}}};

}  // namespace

std::string_view to_string(SampleType samples) { return kernels::name_of(kSampleNames, samples); }
std::optional<SampleType> parse_sample_type(std::string_view word) { return kernels::value_of(kSampleNames, word); }

DeviceTiming time_on_device(const Model& model, const DeviceTimingSpec& spec) {
  try {
    return kernels::time_on_device(*model.stack, spec);
  } catch (const std::bad_alloc&) {
    throw ConfigError("the inputs and outputs of model '" + model.name + "' do not fit in the card's memory");
  } catch (const std::invalid_argument& error) {
    throw ConfigError(error.what());
  } catch (const kernels::BackendUnavailable& error) {
    throw DeviceError(error.what());
  }
}

}  // namespace halotap::pipeline
