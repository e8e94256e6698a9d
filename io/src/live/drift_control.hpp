// How much faster one clock runs than another, from the ring between them.
#pragma once

#include <cstdint>

namespace halotap::io {

// A source fills a ring by its clock, a device empties it by another. A proportional and integral controller finds the
// correction of the frames that go in at which the ring keeps its reserve:
//
//     e = (reserve found - reserve wanted) / rate, in seconds, through a low-pass of 3 s
//     correction = -(2 w e + w^2 * integral of e), within +-1000 ppm;   w = 0.03 / s
//
// critically damped: a drift that begins at once is corrected within two minutes, and the ring strays meanwhile by
// drift / (2.72 w), 6 ms for 500 ppm. A frame that comes 1 ms late moves the correction by less than 1 ppm. The
// integral takes in an error beyond the limit, as behind a hiccup, by a quarter.
//
// Times are the caller's. One thread. [control]
class DriftControl {
 public:
  // Clocks of sound devices lie within +-100 ppm of each other, of bad ones within some hundreds.
  static constexpr double kMostCorrection = 1e-3;

  // The ring begins anew, at the reserve wanted. What is known of the clocks stays.
  void begin_anew() { error_s_ = 0; }
  // The ring's reserve was found to be `error_s` seconds above the wanted one, `elapsed_s` after the last time.
  void update(double error_s, double elapsed_s);

  // Frames to add for each that goes in; below 0: to take away. 1e-6 is 1 ppm.
  double correction() const { return correction_; }
  // The clocks are further apart than can be corrected.
  bool is_at_limit() const { return drift_ == kMostCorrection || drift_ == -kMostCorrection; }

 private:
  double error_s_ = 0;     // behind the low-pass
  double drift_ = 0;       // the integral's part
  double correction_ = 0;  // all
};

}  // namespace halotap::io
