#include "png/png_sink.hpp"

#include <cairo.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "expect_error.hpp"
#include "halotap/pipeline/errors.hpp"
#include "png/axes.hpp"
#include "png/colours.hpp"
#include "png/heat_map.hpp"
#include "png/time_bins.hpp"
#include "scratch_folder.hpp"

namespace halotap::io {
namespace {

using test::ScratchFolder;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(TimeBins, KeepsEveryFrameWhileThereIsRoom) {
  TimeBins bins(2, 4);
  for (const float x : {1.0F, 2.0F, 3.0F}) {
    const float frame[] = {x, -x};
    bins.add(frame);
  }
  EXPECT_EQ(bins.frames(), 3);
  EXPECT_EQ(bins.bins(), 3);
  EXPECT_EQ(bins.frames_per_bin(), 1);
  EXPECT_EQ(bins.value(1, 0), 2.0F);
  EXPECT_EQ(bins.value(2, 1), -3.0F);
}

TEST(TimeBins, JoinsNeighboursWhenFullAndKeepsTheValueOfGreatestMagnitude) {
  TimeBins bins(1, 4);
  for (const float x : {1.0F, -5.0F, 2.0F, 3.0F, 0.0F, 0.5F, 4.0F, -4.5F, -7.0F}) bins.add(&x);
  // Nine frames: two bins' worth of four, and one begun.
  EXPECT_EQ(bins.frames_per_bin(), 4);
  ASSERT_EQ(bins.bins(), 3);
  EXPECT_EQ(bins.value(0, 0), -5.0F);
  EXPECT_EQ(bins.value(1, 0), -4.5F);
  EXPECT_EQ(bins.value(2, 0), -7.0F);
}

TEST(TimeBins, NeverHoldsMoreThanItsLimitAndLosesNoPeak) {
  TimeBins bins(1, 64);
  for (int frame = 0; frame < 100000; ++frame) {
    const float x = frame == 54321 ? 9.0F : 1.0F;
    bins.add(&x);
    ASSERT_LE(bins.bins(), 64);
  }
  EXPECT_EQ(bins.frames(), 100000);
  EXPECT_GE(bins.bins(), 32);
  EXPECT_EQ(bins.value(54321 / bins.frames_per_bin(), 0), 9.0F);
  EXPECT_EQ(bins.largest_magnitude(), 9.0F);
}

TEST(TimeBins, MarksAndCountsValuesThatAreNotFinite) {
  TimeBins bins(1, 2);
  for (const float x : {kNaN, 1.0F, 2.0F, -kInf, 3.0F}) bins.add(&x);
  EXPECT_EQ(bins.not_finite(), 2);
  EXPECT_TRUE(std::isnan(bins.value(0, 0)));
  EXPECT_EQ(bins.value(1, 0), 3.0F);
  EXPECT_EQ(bins.largest_magnitude(), 3.0F);
  EXPECT_FALSE(bins.any_negative()) << "-Inf has no place on a scale";
}

TEST(TimeBins, FindsTheExtremeOfARectangle) {
  TimeBins bins(3, 8);
  for (int frame = 0; frame < 6; ++frame) {
    const float samples[] = {frame == 2 ? -8.0F : 1.0F, frame == 4 ? 9.0F : 2.0F, 3.0F};
    bins.add(samples);
  }
  EXPECT_EQ(bins.extreme(0, 6, 0, 3), 9.0F);
  EXPECT_EQ(bins.extreme(0, 4, 0, 3), -8.0F);
  EXPECT_EQ(bins.extreme(0, 2, 0, 2), 2.0F);
  EXPECT_EQ(bins.extreme(5, 6, 2, 3), 3.0F);
}

TEST(RoundTicks, StandAtRoundNumbersInsideTheRange) {
  const Ticks time = round_ticks(0, 1.428, 12);
  EXPECT_EQ(time.labels, (std::vector<std::string>{"0.0", "0.2", "0.4", "0.6", "0.8", "1.0", "1.2", "1.4"}));
  EXPECT_DOUBLE_EQ(time.positions[3], 0.6);
  EXPECT_EQ(round_ticks(-60, 0, 7).labels, (std::vector<std::string>{"-60", "-50", "-40", "-30", "-20", "-10", "0"}));
  EXPECT_EQ(round_ticks(0, 0.25, 6).labels, (std::vector<std::string>{"0.00", "0.05", "0.10", "0.15", "0.20", "0.25"}));
}

TEST(RoundTicks, AreFewDistinctAndShortForEveryRange) {
  for (int exponent = -44; exponent <= 38; ++exponent) {
    for (const double factor : {1.0, 1.7, 2.4, 3.3, 9.99}) {
      const double high = factor * std::pow(10.0, exponent);
      for (const double low : {0.0, -high}) {
        const Ticks ticks = round_ticks(low, high, 12);
        ASSERT_GE(ticks.positions.size(), 4U) << low << " " << high;
        ASSERT_LE(ticks.positions.size(), 12U) << low << " " << high;
        for (std::size_t i = 0; i < ticks.labels.size(); ++i) {
          EXPECT_LE(ticks.labels[i].size(), 9U) << ticks.labels[i];
          EXPECT_NEAR(std::stod(ticks.labels[i]), ticks.positions[i], 1e-9 * high);
          if (i > 0) {
            EXPECT_NE(ticks.labels[i], ticks.labels[i - 1]);
          }
        }
      }
    }
  }
}

TEST(ChannelAxis, ReadsNamesOfOneUnitAsNumbers) {
  const ChannelAxis axis = channel_axis({"150 Hz", "2.5e3 Hz"}, 2);
  EXPECT_EQ(axis.title, "channel (Hz)");
  EXPECT_EQ(axis.labels, (std::vector<std::string>{"150", "2.5e3"}));
}

TEST(ChannelAxis, LeavesOtherNamesAsTheyAre) {
  const std::vector<std::vector<std::string>> others = {{"150 Hz", "2 kHz"}, {"left hip", "right hip"},
                                                        {"150 Hz", "noise"}, {"1", "2"},
                                                        {"1 ", "2 "},        {"nan Hz", "1 Hz"}};
  for (const auto& names : others) {
    const ChannelAxis axis = channel_axis(names, 2);
    EXPECT_EQ(axis.title, "channel");
    EXPECT_EQ(axis.labels, names);
  }
}

TEST(ChannelAxis, NumbersChannelsWithoutNames) {
  EXPECT_EQ(channel_axis({}, 3).labels, (std::vector<std::string>{"0", "1", "2"}));
}

TEST(Colours, RiseInLightnessAndStayOffTheFlagColour) {
  double before = -1;
  for (int i = 0; i <= 100; ++i) {
    const Colour colour = sequential_colour(i / 100.0);
    const double luminance =
        0.2126 * std::pow(colour.red, 2.2) + 0.7152 * std::pow(colour.green, 2.2) + 0.0722 * std::pow(colour.blue, 2.2);
    EXPECT_GT(luminance, before);
    before = luminance;
    for (const Colour& shown : {colour, diverging_colour(i / 50.0 - 1)}) {
      const double distance = std::hypot(shown.red - kNotFiniteColour.red, shown.green - kNotFiniteColour.green,
                                         shown.blue - kNotFiniteColour.blue);
      EXPECT_GT(distance, 0.5);
    }
  }
}

TEST(HeatMap, SaysWhatIsShown) {
  TimeBins bins(6, 8);
  const float frame[] = {1, 2, kNaN, 4, 5, 6};
  bins.add(frame);
  HeatMap map;
  map.streams = 2;
  map.channels = 3;
  map.rate_hz = 16000;
  EXPECT_EQ(summary_of(map, bins), "2 streams of 3 channels, 1 frame at 16000 Hz, 1 value not finite (green)");
}

// A picture read back.
class Picture {
 public:
  explicit Picture(const std::string& path)
      : surface_(cairo_image_surface_create_from_png(path.c_str()), cairo_surface_destroy) {
    EXPECT_EQ(cairo_surface_status(surface_.get()), CAIRO_STATUS_SUCCESS) << path;
  }
  int width() const { return cairo_image_surface_get_width(surface_.get()); }
  int height() const { return cairo_image_surface_get_height(surface_.get()); }
  std::uint32_t pixel(int x, int y) const {
    const unsigned char* row = cairo_image_surface_get_data(surface_.get()) +
                               std::ptrdiff_t{y} * cairo_image_surface_get_stride(surface_.get());
    return reinterpret_cast<const std::uint32_t*>(row)[x] & 0xFFFFFF;
  }

  struct Box {
    int left = 1 << 20, top = 1 << 20, right = -1, bottom = -1;  // right and bottom are inside
    bool found() const { return right >= 0; }
  };
  // The smallest box around all pixels of this colour.
  Box box_of(std::uint32_t colour) const {
    Box box;
    for (int y = 0; y < height(); ++y) {
      for (int x = 0; x < width(); ++x) {
        if (pixel(x, y) != colour) continue;
        box = {std::min(box.left, x), std::min(box.top, y), std::max(box.right, x), std::max(box.bottom, y)};
      }
    }
    return box;
  }

 private:
  std::unique_ptr<cairo_surface_t, decltype(&cairo_surface_destroy)> surface_;
};

constexpr std::uint32_t kFlag = 0x00FF00;

class PngSinkTest : public testing::Test {
 protected:
  std::unique_ptr<Sink> open(const SinkSpec& spec) const {
    Address address(path_);
    return open_png_sink(address, spec);
  }
  // Writes `samples` [frames, streams, channels] and reads the picture back.
  Picture draw(const SinkSpec& spec, const std::vector<float>& samples) const {
    auto sink = open(spec);
    sink->write(samples.data(), static_cast<std::int64_t>(samples.size()) / (spec.streams * spec.channels));
    sink->finish();
    return Picture(path_);
  }

  ScratchFolder folder_;
  std::string path_ = folder_.file("x.png");
};

SinkSpec spec_of(std::int64_t streams, std::int64_t channels) {
  SinkSpec spec;
  spec.streams = streams;
  spec.channels = channels;
  spec.rate_hz = 100;
  return spec;
}

// 100 frames of `rows` ones; the last ten of row `marked` are not finite.
std::vector<float> marked_samples(std::int64_t rows, std::int64_t marked) {
  std::vector<float> samples(100 * rows, 1.0F);
  for (std::int64_t frame = 90; frame < 100; ++frame) samples[frame * rows + marked] = kNaN;
  return samples;
}

TEST_F(PngSinkTest, ShowsTheFirstChannelAtTheBottomAndLateFramesAtTheRight) {
  const Picture first = draw(spec_of(1, 4), marked_samples(4, 0));
  EXPECT_EQ(first.width(), 1200);
  EXPECT_EQ(first.height(), 700);
  const Picture::Box bottom = first.box_of(kFlag);
  const Picture::Box top = draw(spec_of(1, 4), marked_samples(4, 3)).box_of(kFlag);
  ASSERT_TRUE(bottom.found() && top.found());
  EXPECT_GT(bottom.top, 400);
  EXPECT_LT(top.bottom, 250);
  EXPECT_EQ(bottom.left, top.left);
  EXPECT_GT(bottom.left, 900);
  // Ten of a hundred frames, one of four channels.
  EXPECT_NEAR(bottom.right - bottom.left, 100, 10);
  EXPECT_NEAR(bottom.bottom - bottom.top, 146, 5);
}

TEST_F(PngSinkTest, ShowsOnePanelAStreamTheFirstOnTop) {
  int last_bottom = 0;
  for (int stream = 0; stream < 4; ++stream) {
    const Picture::Box box = draw(spec_of(4, 2), marked_samples(8, 2 * std::int64_t{stream})).box_of(kFlag);
    ASSERT_TRUE(box.found());
    EXPECT_GT(box.top, last_bottom);
    last_bottom = box.bottom;
  }
}

TEST_F(PngSinkTest, KeepsAOneFrameEventOfALongRecordingVisible) {
  std::vector<float> samples(200000, 0.001F);
  samples[100000] = 1.0F;
  const Picture picture = draw(spec_of(1, 1), samples);
  // The brightest colour stands in the colour bar and in one column near the middle.
  const Colour brightest = sequential_colour(1);
  const auto part = [](double x) { return static_cast<std::uint32_t>(std::lround(255 * x)); };
  const std::uint32_t colour = part(brightest.red) << 16 | part(brightest.green) << 8 | part(brightest.blue);
  const Picture::Box box = picture.box_of(colour);
  ASSERT_TRUE(box.found());
  EXPECT_NEAR(box.left, 550, 60);
}

TEST_F(PngSinkTest, ShowsSignedValuesOnALinearScaleWithZeroPale) {
  const Picture picture = draw(spec_of(1, 3), {-1, 0, 1, -1, 0, 1});
  const auto is_blue = [](std::uint32_t c) { return (c & 0xFF) > (c >> 16) + 60; };
  const auto is_red = [](std::uint32_t c) { return (c >> 16) > (c & 0xFF) + 60; };
  EXPECT_TRUE(is_blue(picture.pixel(600, 600)));
  EXPECT_TRUE(is_red(picture.pixel(600, 100)));
  const std::uint32_t middle = picture.pixel(600, 350);
  EXPECT_GT(middle & 0xFF, 0xE0U);
  EXPECT_GT(middle >> 16, 0xE0U);
}

TEST_F(PngSinkTest, DrawsHoweverTheFramesWereCut) {
  std::vector<float> samples(15000);  // 5000 frames
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<float>(std::sin(0.01 * i));
  draw(spec_of(1, 3), samples);
  const std::string whole = ScratchFolder::content(path_);
  auto sink = open(spec_of(1, 3));
  for (std::int64_t frame = 0; frame < 5000; frame += 7) {
    sink->write(samples.data() + frame * 3, std::min<std::int64_t>(7, 5000 - frame));
  }
  sink->finish();
  EXPECT_TRUE(ScratchFolder::content(path_) == whole);
}

TEST_F(PngSinkTest, DrawsWhatHasNoFramesNoPeakOrNothingFinite) {
  draw(spec_of(1, 3), {});
  draw(spec_of(1, 3), {0, 0, 0});
  EXPECT_TRUE(draw(spec_of(1, 2), {kInf, kNaN}).box_of(kFlag).found());
  draw(spec_of(1, 2), {-1e-45F, 3e38F});
  SinkSpec no_rate = spec_of(1, 1024);
  no_rate.rate_hz = 0;
  draw(no_rate, std::vector<float>(1024, 1.0F));
}

TEST_F(PngSinkTest, DrawsNamesThatAreNoUtf8OrVeryLong) {
  SinkSpec spec = spec_of(1, 3);
  spec.channel_names = {"\xFF\xFE\x80", std::string(100000, 'i'), "gr\xC3\xBC\xC3\x9F"};
  // Cairo gives up at text that it does not understand.
  EXPECT_TRUE(draw(spec, {1, 1, kNaN}).box_of(kFlag).found());
}

TEST_F(PngSinkTest, LeavesNothingBehindWithoutFinish) {
  {
    auto sink = open(spec_of(1, 1));
    const float x = 1;
    sink->write(&x, 1);
  }
  EXPECT_EQ(folder_.entries(), 0U);
}

TEST_F(PngSinkTest, RefusesMoreStreamsAndChannelsThanAPictureShows) {
  expect_error<pipeline::ConfigError>([this] { open(spec_of(5, 2)); },
                                      {path_, "expected at most 4 streams in a picture, got 5"});
  expect_error<pipeline::ConfigError>([this] { open(spec_of(1, 1025)); },
                                      {path_, "expected at most 1024 channels in a picture, got 1025"});
  EXPECT_EQ(folder_.entries(), 0U);
}

TEST_F(PngSinkTest, RefusesOptionsItDoesNotKnow) {
  Address address("png://" + path_ + "?size=big");
  expect_error<pipeline::ConfigError>([&] { open_png_sink(address, spec_of(1, 1)); }, {"size"});
}

TEST_F(PngSinkTest, SaysWhenTheDiskIsFull) {
  Address address("png:///dev/full");
  auto sink = open_png_sink(address, spec_of(1, 1));
  const float x = 1;
  sink->write(&x, 1);
  expect_error<pipeline::DataError>([&] { sink->finish(); }, {"/dev/full", "No space left"});
}

}  // namespace
}  // namespace halotap::io
