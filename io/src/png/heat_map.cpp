#include "png/heat_map.hpp"

#include <cairo.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <numbers>
#include <stdexcept>

#include "png/axes.hpp"
#include "png/colours.hpp"

namespace halotap::io {

namespace {

// Pixels.
constexpr int kWidth = 1200;
constexpr int kHeight = 700;
constexpr int kTop = 52;
constexpr int kBottom = 62;
constexpr int kRight = 140;  // holds the colour bar
constexpr int kPanelGap = 30;
constexpr int kBarWidth = 18;
constexpr int kBarGap = 28;
constexpr int kTickLength = 5;
constexpr int kLabelGap = 4;
constexpr int kBarTitleRight = 16;  // from the right edge to the title's middle
constexpr int kMostLabelWidth = 220;
constexpr int kMostNameWidth = 480;
constexpr double kLabelSize = 12;
constexpr double kAxisTitleSize = 13;
constexpr double kTitleSize = 15;
constexpr double kLeastLabelSpacing = 15;

constexpr double kFloorDb = -60;

struct Destroy {
  void operator()(cairo_t* context) const { cairo_destroy(context); }
  void operator()(cairo_surface_t* surface) const { cairo_surface_destroy(surface); }
};
using Context = std::unique_ptr<cairo_t, Destroy>;
using Surface = std::unique_ptr<cairo_surface_t, Destroy>;

void check(cairo_status_t status) {
  if (status != CAIRO_STATUS_SUCCESS) throw std::runtime_error(cairo_status_to_string(status));
}

// Cairo draws nothing more after text that is no UTF-8, so what is none becomes the replacement character.
std::string valid_utf8(const std::string& text) {
  const nlohmann::json json = text;
  return nlohmann::json::parse(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)).get<std::string>();
}

struct Rectangle {
  int x = 0;
  int y = 0;
  int width = 0;
  int height = 0;
};

// How values become colours.
class Scale {
 public:
  explicit Scale(const TimeBins& bins) : decibels_(!bins.any_negative()), peak_(bins.largest_magnitude()) {
    for (std::size_t i = 0; i < colours_.size(); ++i) {
      const double position = static_cast<double>(i) / static_cast<double>(colours_.size() - 1);
      colours_[i] = packed(decibels_ ? sequential_colour(position) : diverging_colour(2 * position - 1));
    }
  }

  std::uint32_t colour(float value) const {
    if (std::isnan(value)) return packed(kNotFiniteColour);
    if (!decibels_) return colour_at(0.5 + 0.5 * value / peak_);
    return value > 0 ? colour_at(1 - 20 * std::log10(value / peak_) / kFloorDb) : colours_.front();
  }
  // The bar's colour, from 0 at its lower end to 1.
  std::uint32_t colour_at(double position) const {
    const double last = static_cast<double>(colours_.size() - 1);
    return colours_[static_cast<std::size_t>(std::lround(std::clamp(position, 0.0, 1.0) * last))];
  }

  // What the bar's ends stand for.
  double low() const { return decibels_ ? kFloorDb : -peak_; }
  double high() const { return decibels_ ? 0 : peak_; }

  std::string title() const {
    if (!decibels_) return "value";
    if (peak_ == 0) return "level (dB; no value is above 0)";
    char text[64];
    std::snprintf(text, sizeof text, "level (dB, 0 dB = %.3g)", peak_);
    return text;
  }

 private:
  // As cairo's RGB24 has it.
  static std::uint32_t packed(const Colour& colour) {
    const auto part = [](double x) { return static_cast<std::uint32_t>(std::lround(255 * std::clamp(x, 0.0, 1.0))); };
    return part(colour.red) << 16 | part(colour.green) << 8 | part(colour.blue);
  }

  bool decibels_;
  double peak_;
  std::array<std::uint32_t, 256> colours_{};
};

// The part of `count` things that pixel `pixel` of `pixels` shows: the one in its middle, or all of its share.
struct Share {
  std::int64_t first = 0;
  std::int64_t end = 0;
};
Share share_of(std::int64_t pixel, std::int64_t pixels, std::int64_t count) {
  if (count <= pixels) {
    const std::int64_t middle = (2 * pixel + 1) * count / (2 * pixels);
    return {middle, middle + 1};
  }
  return {pixel * count / pixels, (pixel + 1) * count / pixels};
}

class Drawing {
 public:
  Drawing()
      : surface_(cairo_image_surface_create(CAIRO_FORMAT_RGB24, kWidth, kHeight)),
        context_(cairo_create(surface_.get())) {
    check(cairo_status(context_.get()));
    cairo_set_source_rgb(context_.get(), 1, 1, 1);
    cairo_paint(context_.get());
    cairo_set_source_rgb(context_.get(), 0.12, 0.12, 0.12);
    cairo_set_line_width(context_.get(), 1);
  }

  void font(double size, cairo_font_weight_t weight = CAIRO_FONT_WEIGHT_NORMAL) {
    cairo_select_font_face(context_.get(), "sans-serif", CAIRO_FONT_SLANT_NORMAL, weight);
    cairo_set_font_size(context_.get(), size);
  }

  double text_width(const std::string& text) const {
    cairo_text_extents_t extents;
    cairo_text_extents(context_.get(), text.c_str(), &extents);
    return extents.x_advance;
  }

  // The text, or as much of it as `width` holds and "...".
  std::string fitted(const std::string& raw, double width) const {
    std::string text = valid_utf8(raw.substr(0, 1000));  // more never fits
    const auto cut = [&](std::size_t bytes) {
      while (bytes > 0 && (text[bytes] & 0xC0) == 0x80) --bytes;  // not inside a character of several bytes
      return text.substr(0, bytes) + "...";
    };
    if (text_width(text) <= width) return text;
    std::size_t fits = 0;
    for (std::size_t too_many = text.size(); too_many - fits > 1;) {
      const std::size_t bytes = fits + (too_many - fits) / 2;
      (text_width(cut(bytes)) <= width ? fits : too_many) = bytes;
    }
    return cut(fits);
  }

  // Text whose box has `anchor` (0: its left, 0.5: its middle, 1: its right) at x and its vertical middle at y.
  void text(const std::string& content, double x, double y, double anchor) {
    cairo_font_extents_t extents;
    cairo_font_extents(context_.get(), &extents);
    cairo_move_to(context_.get(), x - anchor * text_width(content), y + (extents.ascent - extents.descent) / 2);
    cairo_show_text(context_.get(), content.c_str());
  }

  // Text read from below to above, its middle at (x, y).
  void upright_text(const std::string& content, double x, double y) {
    cairo_save(context_.get());
    cairo_translate(context_.get(), x, y);
    cairo_rotate(context_.get(), -std::numbers::pi / 2);
    text(content, 0, 0, 0.5);
    cairo_restore(context_.get());
  }

  void line(double x, double y, double to_x, double to_y) {
    cairo_move_to(context_.get(), x, y);
    cairo_line_to(context_.get(), to_x, to_y);
    cairo_stroke(context_.get());
  }

  void frame(const Rectangle& box) {
    cairo_rectangle(context_.get(), box.x - 0.5, box.y - 0.5, box.width + 1, box.height + 1);
    cairo_stroke(context_.get());
  }

  // Fills the box pixel by pixel with colour(x, y), y counted from above.
  template <typename ColourOf>
  void pixels(const Rectangle& box, ColourOf colour) {
    cairo_surface_flush(surface_.get());
    unsigned char* rows = cairo_image_surface_get_data(surface_.get());
    const int stride = cairo_image_surface_get_stride(surface_.get());
    for (int y = 0; y < box.height; ++y) {
      auto* row = reinterpret_cast<std::uint32_t*>(rows + static_cast<std::ptrdiff_t>(box.y + y) * stride) + box.x;
      for (int x = 0; x < box.width; ++x) row[x] = colour(x, y);
    }
    cairo_surface_mark_dirty(surface_.get());
  }

  std::string png() const {
    check(cairo_status(context_.get()));
    std::string bytes;
    const auto append = [](void* to, const unsigned char* data, unsigned int size) noexcept {
      try {
        static_cast<std::string*>(to)->append(reinterpret_cast<const char*>(data), size);
        return CAIRO_STATUS_SUCCESS;
      } catch (const std::bad_alloc&) {
        return CAIRO_STATUS_NO_MEMORY;
      }
    };
    check(cairo_surface_write_to_png_stream(surface_.get(), append, &bytes));
    return bytes;
  }

 private:
  Surface surface_;
  Context context_;
};

void draw_panel(Drawing& drawing, const Rectangle& box, const Scale& scale, const TimeBins& bins,
                std::int64_t first_row, std::int64_t channels) {
  if (bins.frames() == 0) {
    drawing.font(kAxisTitleSize);
    drawing.text("no frames", box.x + box.width / 2.0, box.y + box.height / 2.0, 0.5);
  } else {
    drawing.pixels(box, [&](int x, int y) {
      const Share frames = share_of(x, box.width, bins.frames());
      const Share rows = share_of(box.height - 1 - y, box.height, channels);
      return scale.colour(bins.extreme(frames.first, frames.end, first_row + rows.first, first_row + rows.end));
    });
  }
  drawing.frame(box);
}

// Every how many channels a label stands, so that labels do not touch: 1, 2, 5, 10, 20, ...
std::int64_t label_stride(int height, std::int64_t channels) {
  const double spacing = static_cast<double>(height) / static_cast<double>(channels);
  for (std::int64_t ten = 1;; ten *= 10) {
    for (const std::int64_t factor : {1, 2, 5}) {
      if (static_cast<double>(factor * ten) * spacing >= kLeastLabelSpacing) return factor * ten;
    }
  }
}

// One label every `stride` channels.
void draw_channel_labels(Drawing& drawing, const Rectangle& box, const std::vector<std::string>& labels,
                         std::int64_t stride, std::int64_t channels) {
  drawing.font(kLabelSize);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double channel = static_cast<double>(i) * static_cast<double>(stride);
    const double y = box.y + box.height * (1 - (channel + 0.5) / static_cast<double>(channels));
    drawing.line(box.x - 1 - kTickLength, y, box.x - 1, y);
    drawing.text(labels[i], box.x - 1 - kTickLength - kLabelGap, y, 1);
  }
}

void draw_colour_bar(Drawing& drawing, const Rectangle& box, const Scale& scale) {
  drawing.pixels(box, [&](int, int y) { return scale.colour_at(1 - (y + 0.5) / box.height); });
  drawing.frame(box);
  drawing.font(kLabelSize);
  if (scale.low() < scale.high()) {
    const Ticks ticks = round_ticks(scale.low(), scale.high(), 13);
    for (std::size_t i = 0; i < ticks.positions.size(); ++i) {
      const double part = (ticks.positions[i] - scale.low()) / (scale.high() - scale.low());
      const double y = box.y + box.height * (1 - part);
      const double x = box.x + box.width + 1;
      drawing.line(x, y, x + kTickLength, y);
      drawing.text(ticks.labels[i], x + kTickLength + kLabelGap, y, 0);
    }
  }
  drawing.font(kAxisTitleSize);
  drawing.upright_text(scale.title(), kWidth - kBarTitleRight, box.y + box.height / 2.0);
}

void draw_time_axis(Drawing& drawing, const std::vector<Rectangle>& panels, const HeatMap& map, std::int64_t frames) {
  const bool seconds = map.rate_hz > 0;
  const Rectangle& last = panels.back();
  if (frames > 0) {
    drawing.font(kLabelSize);
    const double length = static_cast<double>(frames) / (seconds ? map.rate_hz : 1);
    const Ticks ticks = round_ticks(0, length, 12);
    for (std::size_t i = 0; i < ticks.positions.size(); ++i) {
      const double x = last.x + last.width * ticks.positions[i] / length;
      for (const Rectangle& panel : panels) {
        const double y = panel.y + panel.height + 1;
        drawing.line(x, y, x, y + kTickLength);
      }
      drawing.text(ticks.labels[i], x, last.y + last.height + kTickLength + 12, 0.5);
    }
  }
  drawing.font(kAxisTitleSize);
  drawing.text(seconds ? "time (s)" : "time (frames)", last.x + last.width / 2.0, last.y + last.height + 40, 0.5);
}

}  // namespace

std::string summary_of(const HeatMap& map, const TimeBins& bins) {
  const auto counted = [](std::int64_t number, const char* what) {
    return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
  };
  std::string summary;
  if (map.streams > 1) summary += counted(map.streams, "stream") + " of ";
  summary += counted(map.channels, "channel") + ", " + counted(bins.frames(), "frame");
  if (map.rate_hz > 0) {
    char text[64];
    std::snprintf(text, sizeof text, " at %.9g Hz", map.rate_hz);
    summary += text;
  }
  if (bins.not_finite() > 0) summary += ", " + counted(bins.not_finite(), "value") + " not finite (green)";
  return summary;
}

std::string draw_heat_map(const HeatMap& map, const TimeBins& bins) {
  Drawing drawing;
  const Scale scale(bins);
  const ChannelAxis axis = channel_axis(map.channel_names, map.channels);
  const int panels = static_cast<int>(map.streams);
  const int height = (kHeight - kTop - kBottom - (panels - 1) * kPanelGap) / panels;
  const std::int64_t stride = label_stride(height, map.channels);

  drawing.font(kLabelSize);
  std::vector<std::string> labels;
  double widest = 0;
  for (std::int64_t channel = 0; channel < map.channels; channel += stride) {
    labels.push_back(drawing.fitted(axis.labels[channel], kMostLabelWidth));
    widest = std::max(widest, drawing.text_width(labels.back()));
  }
  const int left = 34 + static_cast<int>(std::ceil(widest)) + kLabelGap + kTickLength;
  std::vector<Rectangle> boxes;
  boxes.reserve(panels);
  for (int i = 0; i < panels; ++i) {
    boxes.push_back({left, kTop + i * (height + kPanelGap), kWidth - kRight - left, height});
  }

  for (int i = 0; i < panels; ++i) {
    draw_panel(drawing, boxes[i], scale, bins, i * map.channels, map.channels);
    draw_channel_labels(drawing, boxes[i], labels, stride, map.channels);
    if (panels > 1) {
      drawing.font(kLabelSize, CAIRO_FONT_WEIGHT_BOLD);
      drawing.text("stream " + std::to_string(i), left, boxes[i].y - 10, 0);
    }
  }
  draw_time_axis(drawing, boxes, map, bins.frames());

  const int total_height = boxes.back().y + boxes.back().height - kTop;
  draw_colour_bar(drawing, {kWidth - kRight + kBarGap, kTop, kBarWidth, total_height}, scale);
  drawing.font(kAxisTitleSize);
  drawing.upright_text(drawing.fitted(axis.title, total_height), 16, kTop + total_height / 2.0);
  drawing.font(kTitleSize, CAIRO_FONT_WEIGHT_BOLD);
  drawing.text(drawing.fitted(map.name, kMostNameWidth) + ": " + summary_of(map, bins), kWidth / 2.0, 20, 0.5);
  return drawing.png();
}

}  // namespace halotap::io
