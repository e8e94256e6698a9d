#include "synth/synth_source.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numbers>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "halotap/pipeline/errors.hpp"

namespace halotap::io {
namespace {

using pipeline::ConfigError;

constexpr double kTurn = 2 * std::numbers::pi;
constexpr std::int64_t kMaxFrames = std::int64_t{1} << 40;
constexpr std::int64_t kMaxSeed = std::numeric_limits<std::int64_t>::max();

// --- noise: a hash of what the sample is, not a sequence ---

// The finaliser of splitmix64: every input bit flips every output bit with probability near one half.
constexpr std::uint64_t mix(std::uint64_t bits) {
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111ebU;
  return bits ^ bits >> 31;
}

// A key for each (key, number): chained, it names a stream's channel's frame.
constexpr std::uint64_t derive(std::uint64_t key, std::uint64_t number) {
  return mix(key + 0x9e3779b97f4a7c15U * (number + 1));
}

// Uniform in [0, 1), on the grid of 2^-53 that double holds exactly.
double uniform(std::uint64_t key) { return static_cast<double>(key >> 11) * 0x1p-53; }

// Bell-shaped with mean 0 and standard deviation 1, at most 3.46: the sum of four uniform numbers (variance 1/12 each),
// so that no logarithm is needed and no outlier breaks a plot.
double bell(std::uint64_t key) {
  double sum = 0;
  for (std::uint64_t i = 0; i < 4; ++i) {
    sum += uniform(derive(key, i));
  }
  return (sum - 2) * std::numbers::sqrt3;
}

double fraction(double turns) { return turns - std::floor(turns); }

// --- the kinds ---

struct SampleIndex {
  std::int64_t stream;
  std::int64_t channel;
  std::int64_t frame;
};

using Signal = std::function<double(const SampleIndex&)>;

// Channels of one robot: joint targets, positions, velocities and torques, then the IMU.
constexpr std::array<std::string_view, 4> kLegs = {"lf", "rf", "lh", "rh"};
constexpr std::array<std::string_view, 3> kJoints = {"hip_roll", "hip_pitch", "knee"};
constexpr std::array<std::string_view, 4> kJointQuantities = {"target", "position", "velocity", "torque"};
constexpr std::array<std::string_view, 6> kImuNames = {"gyro_x", "gyro_y", "gyro_z", "accel_x", "accel_y", "accel_z"};
constexpr std::int64_t kRobotJoints = kLegs.size() * kJoints.size();
constexpr std::int64_t kRobotChannels = kJointQuantities.size() * kRobotJoints + kImuNames.size();

std::vector<std::string> robot_channel_names() {
  std::vector<std::string> names;
  for (const std::string_view quantity : kJointQuantities) {
    for (const std::string_view leg : kLegs) {
      for (const std::string_view joint : kJoints) {
        names.push_back(std::string(leg) + "_" + std::string(joint) + "_" + std::string(quantity));
      }
    }
  }
  names.insert(names.end(), kImuNames.begin(), kImuNames.end());
  return names;
}

// A four-legged robot trotting on the spot: diagonal legs step together, half a stride after the other pair. A leg is
// on the ground for the first kStance of its stride and swings for the rest. Angles in rad, velocities in rad/s,
// torques in N m, accelerations in m/s^2.
class Robot {
 public:
  Robot(double rate_hz, double stride_hz, std::uint64_t seed) : rate_hz_(rate_hz), stride_hz_(stride_hz), seed_(seed) {}

  // Channels past the first robot's belong to further ones, each at its own point of the stride.
  double operator()(const SampleIndex& index) const {
    const std::uint64_t stream_key = derive(seed_, static_cast<std::uint64_t>(index.stream));
    const std::uint64_t robot_key = derive(stream_key, static_cast<std::uint64_t>(index.channel / kRobotChannels));
    const std::int64_t channel = index.channel % kRobotChannels;
    const std::uint64_t channel_key = derive(robot_key, static_cast<std::uint64_t>(channel));
    const double seconds = static_cast<double>(index.frame) / rate_hz_;
    const double start = index.stream == 0 && index.channel < kRobotChannels ? 0 : uniform(robot_key);
    const double stride = static_cast<double>(index.frame) * stride_hz_ / rate_hz_ + start;
    const double noise = bell(derive(channel_key, static_cast<std::uint64_t>(index.frame)));
    // Slow drift in [-1, 1]: two periods of some tens of seconds, whose sum does not repeat within a recording.
    const double drift = 0.5 * std::sin(kTurn * fraction(seconds / (40 + 40 * uniform(derive(channel_key, 0)))) +
                                        kTurn * uniform(derive(channel_key, 1))) +
                         0.5 * std::sin(kTurn * fraction(seconds / (15 + 10 * uniform(derive(channel_key, 2)))));
    if (channel < kRobotJoints * static_cast<std::int64_t>(kJointQuantities.size())) {
      return joint(channel / kRobotJoints, channel % kRobotJoints, stride, drift, noise);
    }
    return imu(channel - kRobotJoints * static_cast<std::int64_t>(kJointQuantities.size()), stride, drift, noise);
  }

 private:
  static constexpr double kStance = 0.6;      // share of the stride on the ground
  static constexpr double kServoLag = 0.02;   // of a stride, from target to position
  static constexpr std::int64_t kTarget = 0;  // places in kJointQuantities
  static constexpr std::int64_t kPosition = 1;
  static constexpr std::int64_t kVelocity = 2;

  static double leg_phase(double stride, std::int64_t leg) {
    return fraction(stride + (leg == 1 || leg == 2 ? 0.5 : 0.0));
  }

  // The swing's height in [0, 1], a raised cosine, and its slope a stride.
  static double lift(double phase) {
    return phase < kStance ? 0 : 0.5 - 0.5 * std::cos(kTurn * (phase - kStance) / (1 - kStance));
  }
  static double lift_slope(double phase) {
    return phase < kStance ? 0 : 0.5 * kTurn / (1 - kStance) * std::sin(kTurn * (phase - kStance) / (1 - kStance));
  }

  // The blow of touchdown: rings at 60 Hz and dies away with 20 ms, in [-1, 1].
  double contact(double phase) const {
    const double seconds = phase / stride_hz_;
    return std::exp(-seconds / 0.02) * std::sin(kTurn * 60 * seconds);
  }

  static double angle(std::int64_t joint_kind, double side, double phase) {
    switch (joint_kind) {
      case 0:
        return side * (0.08 + 0.04 * std::sin(kTurn * phase));
      case 1:
        return 0.75 + 0.3 * std::cos(kTurn * phase);
      default:
        return -1.5 - 0.1 * std::sin(kTurn * phase) - 0.5 * lift(phase);
    }
  }
  static double angle_slope(std::int64_t joint_kind, double side, double phase) {
    switch (joint_kind) {
      case 0:
        return side * 0.04 * kTurn * std::cos(kTurn * phase);
      case 1:
        return -0.3 * kTurn * std::sin(kTurn * phase);
      default:
        return -0.1 * kTurn * std::cos(kTurn * phase) - 0.5 * lift_slope(phase);
    }
  }

  double joint(std::int64_t quantity, std::int64_t joint_index, double stride, double drift, double noise) const {
    constexpr auto kKinds = static_cast<std::int64_t>(kJoints.size());
    const std::int64_t leg = joint_index / kKinds;
    const std::int64_t kind = joint_index % kKinds;
    const double side = leg % 2 == 0 ? 1 : -1;
    const double phase = leg_phase(stride, leg);
    const double lagging = fraction(phase - kServoLag);
    if (quantity == kTarget) {
      return angle(kind, side, phase);
    }
    if (quantity == kPosition) {
      return angle(kind, side, lagging) + 0.004 * contact(phase) + 0.002 * drift + 0.0005 * noise;
    }
    if (quantity == kVelocity) {
      return stride_hz_ * angle_slope(kind, side, lagging) + 0.6 * contact(phase) + 0.01 * drift + 0.02 * noise;
    }
    // Torque carries the body while the foot is down (half a sine over the stance) and moves the leg while it swings.
    constexpr std::array<double, 3> kLoad = {4, 9, 22};
    const double load = phase < kStance ? std::sin(std::numbers::pi * phase / kStance) : -0.15 * lift(phase);
    const double blow = 0.35 * contact(phase);
    const double scale = kLoad[static_cast<std::size_t>(kind)];
    return (kind == 0 ? side : 1) * scale * (load + blow) + 0.03 * scale * drift + 0.15 * noise;
  }

  double imu(std::int64_t axis, double stride, double drift, double noise) const {
    // The body moves twice a stride, once for each pair of legs.
    const double sway = kTurn * fraction(2 * stride);
    double blows = 0;
    for (std::int64_t leg = 0; leg < static_cast<std::int64_t>(kLegs.size()); ++leg) {
      blows += contact(leg_phase(stride, leg));
    }
    switch (axis) {
      case 0:
        return 0.25 * std::sin(kTurn * fraction(stride)) + 0.1 * blows + 0.02 * drift + 0.01 * noise;
      case 1:
        return 0.35 * std::sin(sway) + 0.1 * blows + 0.02 * drift + 0.01 * noise;
      case 2:
        return 0.05 * std::cos(kTurn * fraction(stride)) + 0.02 * drift + 0.01 * noise;
      case 3:
        return 0.6 * std::cos(sway) + 0.5 * blows + 0.05 * drift + 0.05 * noise;
      case 4:
        return 0.4 * std::sin(kTurn * fraction(stride)) + 0.3 * blows + 0.05 * drift + 0.05 * noise;
      default:
        return 9.81 + 1.5 * std::sin(sway) + 2.5 * blows + 0.05 * drift + 0.05 * noise;
    }
  }

  double rate_hz_;
  double stride_hz_;
  std::uint64_t seed_;
};

class SynthSource final : public Source {
 public:
  SynthSource(SourceInfo info, Signal signal) : info_(std::move(info)), signal_(std::move(signal)) {}

  const SourceInfo& info() const override { return info_; }
  std::int64_t read(float* samples, std::int64_t frames) override { return read_frames(samples, frames); }
  std::int64_t read(double* samples, std::int64_t frames) override { return read_frames(samples, frames); }

 private:
  template <typename Sample>
  std::int64_t read_frames(Sample* samples, std::int64_t frames) {
    const std::int64_t count = std::min(frames, info_.frames - next_frame_);
    for (const std::int64_t end = next_frame_ + count; next_frame_ < end; ++next_frame_) {
      for (std::int64_t stream = 0; stream < info_.streams; ++stream) {
        for (std::int64_t channel = 0; channel < info_.channels; ++channel) {
          *samples++ = static_cast<Sample>(signal_({stream, channel, next_frame_}));
        }
      }
    }
    return count;
  }

  SourceInfo info_;
  Signal signal_;
  std::int64_t next_frame_ = 0;
};

// Where in its period a sine or chirp starts, in turns: the channels of all streams are spread evenly over one.
double start_phase(const SourceInfo& info, const SampleIndex& index) {
  return static_cast<double>(index.stream * info.channels + index.channel) /
         static_cast<double>(info.streams * info.channels);
}

SourceInfo take_shape(Address& address, const SourceRequest& request, bool is_robot) {
  SourceInfo info;
  info.rate_hz = address.take_number("rate", 1e-3, 1e6)
                     .value_or(request.rate_hz > 0 ? request.rate_hz
                               : is_robot          ? 1000
                                                   : 16000);
  info.channels = address.take_integer("channels", 1, 16384)
                      .value_or(request.channels > 0 ? request.channels
                                : is_robot           ? kRobotChannels
                                                     : 1);
  info.streams = address.take_integer("streams", 1, std::int64_t{1} << 20).value_or(1);
  const auto frames = address.take_integer("frames", 0, kMaxFrames);
  const auto seconds = address.take_number("seconds", 0, static_cast<double>(kMaxFrames) / info.rate_hz);
  if (frames && seconds) {
    throw ConfigError(address.text() + ": expected one of frames and seconds, got both");
  }
  info.frames = frames.value_or(std::llround(seconds.value_or(1) * info.rate_hz));
  info.arrangement = info.streams > 1 ? Arrangement::kStreamsChannelsFrames : Arrangement::kFramesChannels;
  return info;
}

}  // namespace

std::unique_ptr<Source> open_synth_source(Address& address, const SourceRequest& request) {
  const std::string& kind = address.path();
  if (kind != "sine" && kind != "chirp" && kind != "noise" && kind != "robot") {
    throw ConfigError(address.text() + ": expected synth://sine, chirp, noise or robot, got '" + kind + "'");
  }
  SourceInfo info = take_shape(address, request, kind == "robot");
  const double highest_hz = info.rate_hz / 2;  // above it a tone aliases
  Signal signal;
  if (kind == "robot") {
    const double stride_hz = address.take_number("hz", 0.01, 10).value_or(1.5);
    const auto seed = static_cast<std::uint64_t>(address.take_integer("seed", 0, kMaxSeed).value_or(0));
    if (info.channels == kRobotChannels) {
      info.channel_names = robot_channel_names();
    }
    signal = Robot(info.rate_hz, stride_hz, seed);
    return std::make_unique<SynthSource>(std::move(info), std::move(signal));
  }
  const double amplitude = address.take_number("amplitude", 0, 1e6).value_or(0.5);
  if (kind == "sine") {
    const double hz = address.take_number("hz", 0, highest_hz).value_or(std::min(440.0, info.rate_hz / 8));
    signal = [=](const SampleIndex& index) {
      // Product and remainder are exact for whole hz: every period has the same bits, however late.
      const double turns = std::fmod(static_cast<double>(index.frame) * hz, info.rate_hz) / info.rate_hz;
      return amplitude * std::sin(kTurn * (turns + start_phase(info, index)));
    };
  } else if (kind == "chirp") {
    const double from_hz = address.take_number("from_hz", 0, highest_hz).value_or(info.rate_hz / 800);
    const double to_hz = address.take_number("to_hz", 0, highest_hz).value_or(info.rate_hz * 0.45);
    const double slope_hz = (to_hz - from_hz) / std::max(1.0, static_cast<double>(info.frames));  // a frame
    signal = [=](const SampleIndex& index) {
      const auto frame = static_cast<double>(index.frame);
      const double turns = fraction((from_hz + slope_hz * frame / 2) * frame / info.rate_hz);
      return amplitude * std::sin(kTurn * (turns + start_phase(info, index)));
    };
  } else {
    const auto seed = static_cast<std::uint64_t>(address.take_integer("seed", 0, kMaxSeed).value_or(0));
    signal = [=](const SampleIndex& index) {
      const std::uint64_t channel_key =
          derive(derive(seed, static_cast<std::uint64_t>(index.stream)), static_cast<std::uint64_t>(index.channel));
      return amplitude * (2 * uniform(derive(channel_key, static_cast<std::uint64_t>(index.frame))) - 1);
    };
  }
  return std::make_unique<SynthSource>(std::move(info), std::move(signal));
}

}  // namespace halotap::io
