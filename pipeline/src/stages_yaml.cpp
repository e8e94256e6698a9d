#include "stages_yaml.hpp"

#include "halotap/pipeline/built_in_stages.hpp"
#include "stages/stage_fault.hpp"

namespace halotap::pipeline {
namespace {

enum class StageType { kSelect, kAffine, kSmooth, kThreshold, kArgmax, kDecimate, kRms, kLog };

std::string_view to_string(StageType type) {
  switch (type) {
    case StageType::kSelect:
      return "select";
    case StageType::kAffine:
      return "affine";
    case StageType::kSmooth:
      return "smooth";
    case StageType::kThreshold:
      return "threshold";
    case StageType::kArgmax:
      return "argmax";
    case StageType::kDecimate:
      return "decimate";
    case StageType::kRms:
      return "rms";
    case StageType::kLog:
      return "log";
  }
  return "?";
}

// The map of one stage. Which numbers a stage takes is for its own check to say.
class StageMap {
 public:
  explicit StageMap(const YamlValue& value) : value_(value), map_(value.map()) {}

  const YamlValue& value() const { return value_; }
  YamlMap& map() { return map_; }
  void read(std::string_view key, double& number) {
    if (const auto found = map_.optional(key)) number = found->number();
  }
  void read(std::string_view key, std::string& text) {
    if (const auto found = map_.optional(key)) text = found->text();
  }

  // Refuses unknown keys, then makes the stage; what its check refuses is refused at the key's own place.
  template <typename Make>
  StageMaker made(Make make) {
    map_.refuse_unknown_keys();
    try {
      return make();
    } catch (const StageFault& fault) {
      const std::optional<YamlValue> culprit = map_.optional(fault.key());
      (culprit ? *culprit : value_).refuse(fault.expected(), fault.got());
    }
  }

 private:
  YamlValue value_;
  YamlMap map_;
};

StageMaker read_select(StageMap& stage) {
  SelectSpec spec;
  for (const YamlValue& channel : stage.map().required("channels").list(1, kMaxSelectedChannels)) {
    spec.channels.push_back(channel.text());
  }
  return stage.made([&] { return select_stage(spec); });
}

StageMaker read_affine(StageMap& stage) {
  AffineSpec spec;
  stage.read("gain", spec.gain);
  stage.read("offset", spec.offset);
  stage.read("channel", spec.channel);
  if (!stage.map().optional("gain") && !stage.map().optional("offset"))
    stage.value().refuse("a gain or an offset", "neither");
  return stage.made([&] { return affine_stage(spec); });
}

StageMaker read_smooth(StageMap& stage) {
  SmoothSpec spec;
  spec.attack_ms = stage.map().required("attack_ms").number();
  spec.release_ms = spec.attack_ms;
  stage.read("release_ms", spec.release_ms);
  stage.read("channel", spec.channel);
  return stage.made([&] { return smooth_stage(spec); });
}

StageMaker read_threshold(StageMap& stage) {
  ThresholdSpec spec;
  spec.on = stage.map().required("on").number();
  spec.off = spec.on;
  stage.read("off", spec.off);
  stage.read("min_on_ms", spec.min_on_ms);
  stage.read("min_off_ms", spec.min_off_ms);
  stage.read("channel", spec.channel);
  return stage.made([&] { return threshold_stage(spec); });
}

StageMaker read_decimate(StageMap& stage) {
  DecimateSpec spec;
  spec.factor = stage.map().required("factor").integer(1, kMaxDecimation);
  if (const auto keep = stage.map().optional("keep")) spec.keep = keep->word({Keep::kMean, Keep::kMax, Keep::kLast});
  return stage.made([&] { return decimate_stage(spec); });
}

StageMaker read_rms(StageMap& stage) {
  RmsSpec spec;
  spec.window_ms = stage.map().required("window_ms").number();
  return stage.made([&] { return rms_stage(spec); });
}

StageMaker read_log(StageMap& stage) {
  LogSpec spec;
  if (const auto unit = stage.map().optional("unit")) {
    spec.unit = unit->word({LogUnit::kDecibel, LogUnit::kNatural, LogUnit::kDecade});
  }
  stage.read("floor", spec.floor);
  stage.read("channel", spec.channel);
  return stage.made([&] { return log_stage(spec); });
}

StageMaker read(StageType type, StageMap& stage) {
  switch (type) {
    case StageType::kSelect:
      return read_select(stage);
    case StageType::kAffine:
      return read_affine(stage);
    case StageType::kSmooth:
      return read_smooth(stage);
    case StageType::kThreshold:
      return read_threshold(stage);
    case StageType::kDecimate:
      return read_decimate(stage);
    case StageType::kRms:
      return read_rms(stage);
    case StageType::kLog:
      return read_log(stage);
    case StageType::kArgmax:
      break;
  }
  return stage.made(argmax_stage);
}

}  // namespace

StageEntry read_stage(const YamlValue& value) {
  StageMap stage(value);
  const StageType type = stage.map().required("type").word({StageType::kSelect, StageType::kAffine, StageType::kSmooth,
                                                            StageType::kThreshold, StageType::kArgmax,
                                                            StageType::kDecimate, StageType::kRms, StageType::kLog});
  return {std::string(to_string(type)), read(type, stage), value.place() + ": key " + in_quotes(value.key())};
}

}  // namespace halotap::pipeline
