// A source at another rate.
#pragma once

#include <memory>

#include "halotap/io/source.hpp"

namespace halotap::io {

// Gives `source` at `rate_hz`: libsoxr at very high quality with linear phase, its delay taken out, so that output
// frame m stands for the instant m / rate_hz. A recording of n frames becomes round(n * rate_hz / its rate) frames;
// before and after it the filter sees zeros. The bits do not depend on the sizes of the read calls. A live source
// begins anew behind each gap; the frames that the filter holds back are in its latency. A NaN or Inf spreads over the
// filter's whole transform block, some thousands of frames. Returns `source` itself when it has that rate already.
//
// Throws ConfigError when either rate is not a positive number, one is more than 1000 times the other, or libsoxr
// cannot make the step. [control]
std::unique_ptr<Source> resampled(std::unique_ptr<Source> source, double rate_hz);

}  // namespace halotap::io
