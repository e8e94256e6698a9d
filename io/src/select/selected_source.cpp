#include "select/selected_source.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace halotap::io {

namespace {

class SelectedSource : public Source {
 public:
  SelectedSource(std::unique_ptr<Source> source, std::vector<std::int64_t> indices)
      : source_(std::move(source)), indices_(std::move(indices)), info_(source_->info()) {
    info_.channels = static_cast<std::int64_t>(indices_.size());
    if (info_.channel_names.empty()) return;
    info_.channel_names.clear();
    for (const std::int64_t index : indices_) {
      info_.channel_names.push_back(source_->info().channel_names[static_cast<std::size_t>(index)]);
    }
  }

  const SourceInfo& info() const override { return info_; }
  std::int64_t read(float* samples, std::int64_t frames) override { return read_as(samples, frames, float_frames_); }
  std::int64_t read(double* samples, std::int64_t frames) override { return read_as(samples, frames, double_frames_); }
  Gap take_gap() override { return source_->take_gap(); }
  std::optional<pipeline::Instant> capture_time() const override { return source_->capture_time(); }
  Waiting waiting() const override { return source_->waiting(); }

 private:
  template <class Real>
  std::int64_t read_as(Real* samples, std::int64_t frames, std::vector<Real>& whole) {
    // By parts: the inner source may have many more channels than the caller made room for.
    constexpr std::int64_t kPartValues = 1 << 18;
    const std::int64_t inner_channels = source_->info().channels;
    const std::int64_t part = std::max<std::int64_t>(kPartValues / (info_.streams * inner_channels), 1);
    std::int64_t done = 0;
    while (done < frames) {
      const std::int64_t wanted = std::min(part, frames - done);
      whole.resize(static_cast<std::size_t>(wanted * info_.streams * inner_channels));
      const std::int64_t count = source_->read(whole.data(), wanted);
      const Real* from = whole.data();
      for (std::int64_t row = 0; row < count * info_.streams; ++row, from += inner_channels) {
        for (const std::int64_t index : indices_) *samples++ = from[index];
      }
      done += count;
      if (count < wanted) break;
    }
    return done;
  }

  std::unique_ptr<Source> source_;
  std::vector<std::int64_t> indices_;
  SourceInfo info_;
  std::vector<float> float_frames_;    // [frames, streams, inner channels]
  std::vector<double> double_frames_;  // the same
};

}  // namespace

std::unique_ptr<Source> selected(std::unique_ptr<Source> source, std::vector<std::int64_t> indices) {
  return std::make_unique<SelectedSource>(std::move(source), std::move(indices));
}

}  // namespace halotap::io
