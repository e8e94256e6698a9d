// Results held against an expectation, sample by sample, as they come.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "halotap/io/sink.hpp"
#include "halotap/io/source.hpp"

namespace halotap::apps {

struct Tolerances {
  double rel_l2 = 0;
  double abs = 0;
};

// One sample that is not as expected.
struct Mismatch {
  std::int64_t stream = 0;
  std::int64_t channel = 0;
  std::int64_t frame = 0;
  double got = 0;
  double expected = 0;
};

// A sink that compares what it is given with a recording, in double:
//
//     rel_l2  = ||result - expected|| / ||expected||      over all samples of all streams; 0 when both are all zeros
//     max_abs = max |result - expected|
//
// NaN equals NaN and an infinity itself, and neither counts in the figures above; where only one of the two samples is
// finite, or the infinities differ, the comparison fails whatever the tolerances. Nothing but the figures is kept, so a
// recording of any length can be compared.
class Comparison : public io::Sink {
 public:
  // `name` is the expectation's, for messages. With `stop` set, results that end early are no error. Throws DataError
  // with both values when the expectation's streams, channels or (known) frames differ from `result`'s.
  Comparison(std::unique_ptr<io::Source> expected, std::string name, const io::SinkSpec& result,
             const std::atomic<bool>* stop);

  void write(const float* samples, std::int64_t frames) override;
  // Throws DataError with both values when the expectation holds fewer or more frames than were written.
  void finish() override;

  std::int64_t frames() const { return frames_; }
  std::uint64_t non_finite_mismatches() const { return non_finite_mismatches_; }
  // Nothing when there are non-finite mismatches, or only the expectation is all zeros.
  std::optional<double> rel_l2() const;
  // Nothing when there are non-finite mismatches.
  std::optional<double> max_abs() const;
  // Either tolerance holds.
  bool passes(const Tolerances& tolerances) const;
  // Nothing when it passes; otherwise the first sample in time with a non-finite mismatch, or whose error is above the
  // absolute tolerance and a hundredth of the largest error: rounding is far below that, what went wrong is not.
  std::optional<Mismatch> first_mismatch(const Tolerances& tolerances) const;

 private:
  // Sample `sample` (counted in time order) and its error.
  struct Error {
    std::int64_t sample;
    double got;
    double expected;
    double size() const { return std::abs(got - expected); }
  };
  void compare(const Error& error);
  double largest_error() const { return largest_ ? largest_->size() : 0; }

  std::unique_ptr<io::Source> expected_;
  std::string name_;
  const std::atomic<bool>* stop_;
  std::int64_t streams_;
  std::int64_t channels_;
  std::int64_t block_frames_ = 0;
  std::vector<double> block_;        // [block frames, streams, channels] of the expectation
  std::int64_t frames_ = 0;          // compared
  std::int64_t missing_frames_ = 0;  // written after the expectation had ended
  // Squares of every double fit in a long double where its exponent is wider; where it is not, an overflow fails the
  // comparison.
  long double error_energy_ = 0;
  long double expected_energy_ = 0;
  std::uint64_t non_finite_mismatches_ = 0;
  std::optional<Error> first_non_finite_;
  std::optional<Error> largest_;
  std::vector<Error> peaks_;  // each 0.1 % above the one before, in time order
};

}  // namespace halotap::apps
