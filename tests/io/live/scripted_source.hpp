// A live source that says what a test wrote down.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "halotap/io/source.hpp"

namespace halotap::io {

// What happens next: some frames, a gap, or something of the test's. Nothing when all is told.
struct LiveEvent {
  std::vector<float> frames = {};
  Gap gap = {};
  std::function<void()> then = [] {};
};

class ScriptedSource final : public Source {
 public:
  ScriptedSource(std::vector<LiveEvent> events, double rate_hz, bool is_live = true)
      : events_(events.begin(), events.end()) {
    info_.channels = 1;
    info_.rate_hz = rate_hz;
    info_.is_live = is_live;
  }

  const SourceInfo& info() const override { return info_; }
  using Source::read;
  std::int64_t read(float* samples, std::int64_t frames) override {
    if (events_.empty() || events_.front().gap.exists()) return 0;
    LiveEvent& next = events_.front();
    const auto count = std::min<std::int64_t>(frames, static_cast<std::int64_t>(next.frames.size()));
    std::copy_n(next.frames.begin(), count, samples);
    next.frames.erase(next.frames.begin(), next.frames.begin() + count);
    if (next.frames.empty()) {
      const LiveEvent told = std::move(next);
      events_.pop_front();
      told.then();
    }
    return count;
  }
  Gap take_gap() override {
    if (events_.empty() || !events_.front().gap.exists()) return {};
    const Gap gap = events_.front().gap;
    events_.pop_front();
    return gap;
  }

 private:
  std::deque<LiveEvent> events_;
  SourceInfo info_;
};

}  // namespace halotap::io
