// Every file under configs/ is loaded, and the cochlea model is heard.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <filesystem>
#include <numbers>
#include <string>
#include <vector>

#include "halotap/kernels/stack.hpp"
#include "halotap/pipeline/config.hpp"
#include "halotap/pipeline/model.hpp"
#include "halotap/pipeline/pipeline.hpp"

namespace halotap::pipeline {
namespace {

const std::filesystem::path kConfigs = std::filesystem::path(HALOTAP_SOURCE_DIR) / "configs";

Model load_cochlea() { return load_model(kConfigs / "cochlea" / "model.yaml"); }

TEST(Configs, CochleaReplayNamesTheModelBesideIt) {
  const PipelineConfig config = load_pipeline_config(kConfigs / "cochlea" / "replay.yaml");
  EXPECT_TRUE(std::filesystem::equivalent(config.model_file, kConfigs / "cochlea" / "model.yaml"));
  EXPECT_EQ(config.chunk_frames, 480);
  EXPECT_EQ(config.sink_uris.size(), 2U);
}

TEST(Configs, LiveCochleaTakesTheMicrophoneIntoTheSameModel) {
  const PipelineConfig config = load_pipeline_config(kConfigs / "live-cochlea.yaml");
  EXPECT_EQ(config.source_uri.find("portaudio://default"), 0U);
  EXPECT_TRUE(std::filesystem::equivalent(config.model_file, kConfigs / "cochlea" / "model.yaml"));
  EXPECT_EQ(config.chunk_frames, 240);
}

TEST(Configs, CochleaSweepTellsWhenARisingToneIsInEachBand) {
  const PipelineConfig config = load_pipeline_config(kConfigs / "cochlea" / "sweep.yaml");
  EXPECT_EQ(config.source_uri, "synth://chirp?from_hz=100&to_hz=5500&seconds=3");
  PipelineSpec spec;
  spec.backend = Backend::kCpu;
  spec.chunks.max_frames = config.chunk_frames;
  spec.ring_capacity_frames = 3 * 48000;
  spec.stages = config.stages;
  Pipeline pipeline(load_model(config.model_file), spec);
  EXPECT_EQ(pipeline.output().rate_hz, 100);

  std::vector<float> chirp(3 * 48000);
  for (std::size_t i = 0; i < chirp.size(); ++i) {
    const double t = static_cast<double>(i) / 48000;
    chirp[i] = static_cast<float>(0.5 * std::sin(2 * std::numbers::pi * (100 + 900 * t) * t));
  }
  EXPECT_EQ(pipeline.push(chirp.data(), std::ssize(chirp)), std::ssize(chirp));
  std::vector<StageEvent> events;
  for (Pipeline::Step step = pipeline.step(); step.frames_in > 0; step = pipeline.step()) {
    events.insert(events.end(), step.events.begin(), step.events.end());
  }
  ASSERT_EQ(events.size(), 2 * pipeline.output().channel_names.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    const std::string& band = pipeline.output().channel_names[i / 2];
    EXPECT_EQ(events[i].channel_name, band);
    EXPECT_EQ(events[i].name, i % 2 == 0 ? "on" : "off");
    const double at_centre_s = (std::stod(band) - 100) / 1800;
    EXPECT_EQ(events[i].time_s < at_centre_s, i % 2 == 0) << band;
  }
}

TEST(Configs, EachIsAPipelineOrAModelThatLoads) {
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kConfigs)) {
    if (entry.path().extension() != ".yaml") continue;
    ++files;
    if (entry.path().filename() == "model.yaml") {
      EXPECT_NO_THROW(load_model(entry.path())) << entry.path();
    } else {
      const PipelineConfig config = load_pipeline_config(entry.path());
      // Also the channels and rates that its stages ask for.
      EXPECT_NO_THROW(Pipeline(load_model(config.model_file), {.stages = config.stages})) << entry.path();
    }
  }
  EXPECT_GE(files, 3);
}

TEST(Configs, CochleaHasTheFiguresThatItsPageStates) {
  const Model model = load_cochlea();
  EXPECT_EQ(model.frame_rate_hz, 48000);
  EXPECT_EQ(model.stack->in_channels(), 1);
  EXPECT_EQ(model.stack->out_channels(), 32);
  ASSERT_EQ(model.output_channels.size(), 32U);
  EXPECT_EQ(model.output_channels.front(), "150 Hz");
  EXPECT_EQ(model.stack->receptive_field(), 2707);
  EXPECT_EQ(model.stack->lookahead_frames(), 0);
  EXPECT_EQ(model.stack->macs_per_frame(), 5184);
}

// What each channel says at the end of 100 ms of a tone of amplitude 1: over the whole periods of the last 20 ms, for
// the level of a low band pulses with the tone.
struct Level {
  double mean = 0;
  double least = 1;
  double most = 0;
};
std::vector<Level> levels_of_tone(const Model& model, double frequency_hz) {
  constexpr std::int64_t kFrames = 4800;
  const std::int64_t measured = std::llround(std::floor(0.02 * frequency_hz) / frequency_hz * 48000);
  std::vector<float> tone(kFrames);
  for (std::int64_t t = 0; t < kFrames; ++t) {
    tone[t] = static_cast<float>(std::sin(2 * std::numbers::pi * frequency_hz * static_cast<double>(t) / 48000));
  }
  PipelineSpec spec;
  spec.backend = Backend::kCpu;
  spec.chunks.max_frames = 480;
  spec.ring_capacity_frames = kFrames;
  Pipeline pipeline(model, spec);
  EXPECT_EQ(pipeline.push(tone.data(), kFrames), kFrames);

  std::vector<Level> levels(32);
  std::int64_t frame = 0;
  for (;;) {
    const Pipeline::Step step = pipeline.step();
    if (step.frames_in == 0) break;
    for (std::int64_t i = 0; i < step.frames_out; ++i, ++frame) {
      if (frame < kFrames - measured) continue;
      for (std::size_t c = 0; c < levels.size(); ++c) {
        const double value = step.samples[i * 32 + static_cast<std::int64_t>(c)];
        levels[c].mean += value / static_cast<double>(measured);
        levels[c].least = std::min(levels[c].least, value);
        levels[c].most = std::max(levels[c].most, value);
      }
    }
  }
  EXPECT_EQ(frame, kFrames);
  return levels;
}

TEST(Cochlea, HearsAToneInTheBandThatBearsItsFrequency) {
  const Model model = load_cochlea();
  for (std::size_t band = 2; band < 32; band += 7) {
    const std::string& name = model.output_channels[band];
    const std::vector<Level> levels = levels_of_tone(model, std::stod(name));
    // The mean of a half-wave-rectified sine is 1 / pi.
    EXPECT_NEAR(levels[band].mean * std::numbers::pi, 1.0, 0.02) << name;
    for (std::size_t other = 0; other < 32; ++other) {
      EXPECT_GE(levels[other].least, 0) << name << " in " << model.output_channels[other];
      if (other != band) {
        EXPECT_LT(levels[other].mean, levels[band].mean) << name << " in " << model.output_channels[other];
      }
    }
  }
}

// |G(f)| of the gammatone t^3 exp(-2 pi b t) cos(2 pi f t), scaled to 1 at its centre.
double formula_gain(double centre_hz, double frequency_hz) {
  const double b = 1.019 * 24.7 * (0.00437 * centre_hz + 1);
  const auto response = [&](double f) {
    return std::pow(std::complex<double>(b, f - centre_hz), -4) + std::pow(std::complex<double>(b, f + centre_hz), -4);
  };
  return std::abs(response(frequency_hz) / response(centre_hz));
}

TEST(Cochlea, HearsTonesAsLoudAsTheGammatoneFormulaSays) {
  const Model model = load_cochlea();
  // Those above 5 kHz are among the repetitions that the dilated filters' pass bands would have.
  for (const double frequency_hz :
       {150.0, 250.0, 500.0, 850.0, 1000.0, 1600.0, 2500.0, 4000.0, 5500.0, 7000.0, 8850.0, 12000.0, 17500.0}) {
    const std::vector<Level> levels = levels_of_tone(model, frequency_hz);
    for (std::size_t band = 0; band < levels.size(); ++band) {
      const std::string& name = model.output_channels[band];
      EXPECT_NEAR(levels[band].mean * std::numbers::pi, formula_gain(std::stod(name), frequency_hz), 0.0065)
          << frequency_hz << " Hz in " << name;
    }
  }
}

TEST(Cochlea, GivesASteadyLevelForASteadyTone) {
  const Model model = load_cochlea();
  // The 2nd harmonic of 3 kHz lies at 6 kHz, where the dilated envelope filter repeats its pass band.
  for (const double frequency_hz : {1000.0, 3000.0}) {
    const std::vector<Level> levels = levels_of_tone(model, frequency_hz);
    const auto loudest =
        std::max_element(levels.begin(), levels.end(), [](const Level& a, const Level& b) { return a.mean < b.mean; });
    EXPECT_LT((loudest->most - loudest->least) / loudest->mean, 0.02) << frequency_hz;
  }
}

}  // namespace
}  // namespace halotap::pipeline
