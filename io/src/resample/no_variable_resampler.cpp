// In a build without libsoxr.
#include "halotap/pipeline/errors.hpp"
#include "resample/variable_resampler.hpp"

namespace halotap::io {

struct VariableResampler::Impl {};

VariableResampler::VariableResampler(std::int64_t) {
  throw pipeline::ConfigError("this build has no resampling (libsoxr)");
}
VariableResampler::~VariableResampler() = default;
void VariableResampler::change(double, std::int64_t) {}
VariableResampler::Made VariableResampler::process(const float*, std::int64_t) { return {}; }
std::uint64_t VariableResampler::samples_zeroed() const { return 0; }
std::int64_t VariableResampler::delay_frames() const { return 0; }

}  // namespace halotap::io
