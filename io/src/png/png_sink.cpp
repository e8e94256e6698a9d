#include "png/png_sink.hpp"

#include <filesystem>
#include <stdexcept>
#include <utility>

#include "halotap/pipeline/errors.hpp"
#include "output_file.hpp"
#include "png/heat_map.hpp"
#include "png/time_bins.hpp"

namespace halotap::io {

namespace {

// About two a pixel, so that joining neighbours never leaves fewer than one.
constexpr std::int64_t kMaxTimeBins = 2048;

class PngSink : public Sink {
 public:
  PngSink(const std::string& path, HeatMap map)
      : output_(path), map_(std::move(map)), bins_(map_.streams * map_.channels, kMaxTimeBins) {}

  void write(const float* samples, std::int64_t frames) override {
    for (std::int64_t frame = 0; frame < frames; ++frame) bins_.add(samples + frame * bins_.rows());
  }

  void finish() override {
    std::string png;
    try {
      png = draw_heat_map(map_, bins_);
    } catch (const std::runtime_error& error) {
      throw pipeline::DataError(output_.file().name() + ": cannot be drawn: " + error.what());
    }
    output_.file().write(png.data(), png.size());
    output_.finish();
  }

 private:
  OutputFile output_;
  HeatMap map_;
  TimeBins bins_;
};

void require_at_most(const Address& address, const char* what, std::int64_t most, std::int64_t given) {
  if (given <= most) return;
  throw pipeline::ConfigError(address.text() + ": expected at most " + std::to_string(most) + " " + what +
                              " in a picture, got " + std::to_string(given));
}

}  // namespace

std::unique_ptr<Sink> open_png_sink(Address& address, const SinkSpec& spec) {
  address.require_all_options_taken("");
  require_at_most(address, "streams", kMaxPictureStreams, spec.streams);
  require_at_most(address, "channels", kMaxPictureChannels, spec.channels);
  HeatMap map;
  map.name = std::filesystem::path(address.path()).stem().string();
  map.streams = spec.streams;
  map.channels = spec.channels;
  map.rate_hz = spec.rate_hz;
  map.channel_names = spec.channel_names;
  return std::make_unique<PngSink>(address.path(), std::move(map));
}

}  // namespace halotap::io
