// The stages that come with halotap. docs/stages.md has their equations.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "halotap/pipeline/stage.hpp"

namespace halotap::pipeline {

// Every function below checks its spec when called and throws ConfigError naming field, expected and got; whether the
// channels exist shows when a pipeline is made. A channel is a name of the stage's input or else a number from 0; where
// one may be chosen, empty means all, and channels that are not chosen pass unchanged. Times are milliseconds, at most
// an hour. [control]

inline constexpr std::int64_t kMaxSelectedChannels = 65536;
inline constexpr std::int64_t kMaxDecimation = std::int64_t{1} << 30;

// Takes these channels, in this order.
struct SelectSpec {
  std::vector<std::string> channels;  // 1 to kMaxSelectedChannels; a channel may come twice
};
StageMaker select_stage(const SelectSpec& spec);

// y = gain * x + offset, in double, rounded once.
struct AffineSpec {
  double gain = 1;    // finite as float32
  double offset = 0;  // finite as float32
  std::string channel = {};
};
StageMaker affine_stage(const AffineSpec& spec);

// y[t] = y[t-1] + a * (x[t] - y[t-1]), a = 1 - exp(-1 / (rate * time)), from y = 0 on: `attack_ms` where x rises above
// y, `release_ms` where it falls below. A sample that is not finite comes out as it is and leaves y alone.
struct SmoothSpec {
  double attack_ms = 0;           // 0: at once
  double release_ms = attack_ms;  // 0: at once
  std::string channel = {};
};
StageMaker smooth_stage(const SmoothSpec& spec);

// 1 from `on` upwards, 0 below `off`, both rounded to float32 as samples are, as before in between and at a NaN; 0 at
// the beginning. A change counts once it has lasted its least time, rounded up to whole frames; the output then
// changes, and an event "on" or "off" bears the frame at which it began. Latency: the longer of the two times less one
// frame.
struct ThresholdSpec {
  double on = std::numeric_limits<double>::quiet_NaN();  // finite; has to be given
  double off = on;                                       // finite, at most `on`
  double min_on_ms = 0;
  double min_off_ms = 0;
  std::string channel = {};
};
StageMaker threshold_stage(const ThresholdSpec& spec);

// The number of the channel with the greatest sample, the first of equals, as the one channel "argmax". A NaN is passed
// over; NaN comes out where there is nothing else.
StageMaker argmax_stage();

// What one frame in place of several keeps of each channel.
enum class Keep { kMean, kMax, kLast };
std::string_view to_string(Keep keep);

// One frame for `factor` frames, out with the last of them; the last of a recording may stand for fewer. A NaN among
// them makes their mean and greatest NaN. Latency: factor - 1 frames.
struct DecimateSpec {
  std::int64_t factor = 0;  // 1 to kMaxDecimation
  Keep keep = Keep::kMean;
};
StageMaker decimate_stage(const DecimateSpec& spec);

// One frame a window: the root of the mean of squares of each channel. The window is rounded to whole frames, at least
// one; the last of a recording may be shorter. A NaN or Inf stays in its window. Latency: the window less one frame.
struct RmsSpec {
  double window_ms = 0;  // > 0
};
StageMaker rms_stage(const RmsSpec& spec);

enum class LogUnit { kDecibel, kNatural, kDecade };
std::string_view to_string(LogUnit unit);

// 20 log10 (kDecibel), ln (kNatural) or log10 (kDecade) of |x|, or of `floor` where |x| is less. NaN stays NaN.
struct LogSpec {
  LogUnit unit = LogUnit::kDecibel;
  double floor = 1e-6;  // > 0, at most 1e30
  std::string channel = {};
};
StageMaker log_stage(const LogSpec& spec);

}  // namespace halotap::pipeline
