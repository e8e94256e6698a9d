#include "halotap/pipeline/device_timing.hpp"

#include <new>
#include <stdexcept>

#include "halotap/pipeline/errors.hpp"

namespace halotap::pipeline {

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
