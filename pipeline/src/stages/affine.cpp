#include "halotap/pipeline/built_in_stages.hpp"
#include "stages/map_stage.hpp"
#include "stages/stage_values.hpp"

namespace halotap::pipeline {

StageMaker affine_stage(const AffineSpec& spec) {
  require_finite("gain", spec.gain);
  require_finite("offset", spec.offset);
  return map_stage(spec.channel, [gain = spec.gain, offset = spec.offset](double x) { return gain * x + offset; });
}

}  // namespace halotap::pipeline
