// Colours of a heat map.
#pragma once

namespace halotap::io {

// Parts from 0 to 1, as a screen takes them (sRGB).
struct Colour {
  double red = 0;
  double green = 0;
  double blue = 0;
};

// Marks values that are not finite. Neither map below comes near it.
inline constexpr Colour kNotFiniteColour{0.0, 1.0, 0.0};

// Dark violet over red to light yellow; `position` from 0 to 1. [any thread]
Colour sequential_colour(double position);

// Blue over white to red; `position` from -1 to 1. [any thread]
Colour diverging_colour(double position);

}  // namespace halotap::io
