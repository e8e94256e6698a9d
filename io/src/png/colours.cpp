#include "png/colours.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace halotap::io {

namespace {

double cube(double x) { return x * x * x; }

// sRGB's transfer curve.
double encoded(double linear) {
  return linear <= 0.0031308 ? 12.92 * linear : 1.055 * std::pow(linear, 1.0 / 2.4) - 0.055;
}

// OKLab (Ottosson 2020), in which equal distances look about equal, to linear sRGB; outside 0 to 1 when no screen
// shows the colour.
Colour linear_from_oklab(double lightness, double a, double b) {
  const double l = cube(lightness + 0.3963377774 * a + 0.2158037573 * b);
  const double m = cube(lightness - 0.1055613458 * a - 0.0638541728 * b);
  const double s = cube(lightness - 0.0894841775 * a - 1.2914855480 * b);
  return {4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
          -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
          -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s};
}

bool shown_by_screens(const Colour& linear) {
  const auto [least, most] = std::minmax({linear.red, linear.green, linear.blue});
  return least >= 0 && most <= 1;
}

// Lightness and hue are kept; the colour is made paler as far as a screen needs it.
Colour from_lightness_chroma_hue(double lightness, double chroma, double hue_degrees) {
  const double hue = hue_degrees * std::numbers::pi / 180;
  for (;; chroma *= 0.99) {
    const Colour linear = linear_from_oklab(lightness, chroma * std::cos(hue), chroma * std::sin(hue));
    if (shown_by_screens(linear)) return {encoded(linear.red), encoded(linear.green), encoded(linear.blue)};
  }
}

}  // namespace

Colour sequential_colour(double position) {
  const double p = std::clamp(position, 0.0, 1.0);
  return from_lightness_chroma_hue(0.13 + 0.83 * p, 0.17, 285 + 180 * p);
}

Colour diverging_colour(double position) {
  const double p = std::clamp(position, -1.0, 1.0);
  return from_lightness_chroma_hue(0.97 - 0.57 * std::abs(p), 0.19 * std::abs(p), p < 0 ? 260 : 28);
}

}  // namespace halotap::io
