#include "cuda/pass_executor.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <new>
#include <utility>
#include <vector>

namespace halotap::kernels::cuda {
namespace {

// Calls copy(channel, frame) for all of them in blocks of a cache line of frames by few channels. A planar view's
// channels often lie a power of two apart and fall into one set of the cache: with more of them at a time than the
// set has ways (8 or more), every line would be lost before its next frame is wanted.
template <typename Copy>
void copy_blocks(std::int64_t channels, std::int64_t frames, const Copy& copy) {
  constexpr std::int64_t kBlockChannels = 8;
  constexpr std::int64_t kBlockFrames = 16;
  for (std::int64_t c = 0; c < channels; c += kBlockChannels) {
    const std::int64_t c_end = std::min(c + kBlockChannels, channels);
    for (std::int64_t t = 0; t < frames; t += kBlockFrames) {
      const std::int64_t t_end = std::min(t + kBlockFrames, frames);
      for (std::int64_t frame = t; frame < t_end; ++frame) {
        for (std::int64_t channel = c; channel < c_end; ++channel) copy(channel, frame);
      }
    }
  }
}

// A chunk goes through the stack in steps of at most shape.step_frames frames, a pass a step, with as many of the
// call's streams in each pass as it has items. Layer l's window holds input at times
//
//     [n - lag - halo, n - lag + m)        n frames received before, m new ones, lag = lag_frames of the layer
//
// and a frame whose time lies outside the recording is zero there, computed or not.
class PassExecutor final : public Executor {
 public:
  PassExecutor(const PassShape& shape, std::vector<std::unique_ptr<PassDevice>> devices)
      : shape_(shape),
        in_channels_(shape.layers.front().channels),
        lookahead_(shape.layers.back().lag_frames),
        shards_(devices.size()),
        streams_(devices.size() * static_cast<std::size_t>(shape.max_slots)),
        frames_to_hold_(streams_.size() * static_cast<std::size_t>(in_channels_)),
        taken_(streams_.size()) {
    for (std::size_t s = 0; s < shards_.size(); ++s) {
      shards_[s].device = std::move(devices[s]);
      shards_[s].entries.reserve(static_cast<std::size_t>(shape.max_items));
      shards_[s].chunk_of_item.reserve(static_cast<std::size_t>(shape.max_items));
    }
  }

  ~PassExecutor() override {
    const auto is_silent = [](const Shard& shard) { return shard.device->is_silent(); };
    if (std::none_of(shards_.begin(), shards_.end(), is_silent)) return;
    // The others, too: the memory of the host is the first one's. Reachable to the end, so that it does not look like
    // memory that was lost.
    static std::vector<PassDevice*>& silent = *new std::vector<PassDevice*>();
    for (Shard& shard : shards_) silent.push_back(shard.device.release());
  }

  void reset(std::int64_t slot, const Fill& fill) noexcept HALOTAP_NONBLOCKING override {
    Stream& stream = this->stream(slot);
    stream = Stream{};
    stream.fill = fill.kind;
    if (fill.kind == FillKind::kFrame) std::copy_n(fill.frame, in_channels_, frame_to_hold(slot));
  }

  void process(std::span<SlotChunk> chunks, std::int64_t worker) noexcept HALOTAP_NONBLOCKING override {
    assert(worker == 0);
    static_cast<void>(worker);
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      taken_[i] = 0;
      chunks[i].frames_emitted = 0;
    }
    if (failure() != nullptr) return;
    even_frames_ = find_even_frames(chunks);
    for (Shard& shard : shards_) {
      shard.next = 0;
      shard.takes_even = even_frames_ > 0;
      shard.has_more = false;
    }
    for (bool is_done = false; !is_done;) {
      is_done = true;
      for (Shard& shard : shards_) {
        put_together(shard, chunks);
        if (shard.entries.empty()) continue;
        shard.device->start(shard.entries);
        is_done = false;
      }
      bool has_failed = false;
      for (Shard& shard : shards_) {
        if (!shard.entries.empty() && !finish(shard, chunks)) has_failed = true;
      }
      if (has_failed) {
        // Nothing that the call gave counts.
        for (SlotChunk& chunk : chunks) chunk.frames_emitted = 0;
        return;
      }
    }
  }

  std::int64_t flush(std::int64_t slot, FrameView output) noexcept HALOTAP_NONBLOCKING override {
    if (failure() != nullptr) return 0;
    PassDevice& device = *shard(slot).device;
    Stream& stream = this->stream(slot);
    const std::int64_t end = stream.received;
    std::int64_t emitted = 0;
    // Frames after the end are zeros to every layer, whatever is staged: nothing is.
    for (std::int64_t done = 0; end > 0 && done < lookahead_;) {
      PassEntry entry = entry_of(slot, std::min(lookahead_ - done, shape_.step_frames));
      entry.end = end;
      set_input(device, entry, 0, {});
      set_output(device, entry, 0, output, emitted);
      if (!device.run({&entry, 1})) return 0;
      emitted += emit(device, entry, 0, output, emitted);
      stream.received += entry.frames;
      done += entry.frames;
    }
    reset(slot, Fill{});
    return emitted;
  }

  float* allocate_samples(std::int64_t count) override {
    if (count < 0 || count > kMostSamples) throw std::bad_alloc();
    in_place_.reserve(in_place_.size() + 1);
    float* samples = shards_.front().device->allocate_samples(count);
    if (samples == nullptr) return Executor::allocate_samples(count);
    in_place_.insert(first_behind(samples), {samples, static_cast<std::size_t>(count)});
    return samples;
  }

  std::size_t state_bytes() const noexcept override {
    return static_cast<std::size_t>(shape_.state_floats) * sizeof(float);
  }

  std::string description() const override {
    const std::string one = shards_.front().device->description();
    return shards_.size() == 1 ? one : std::to_string(shards_.size()) + " x " + one;
  }

  const char* failure() const noexcept override {
    for (const Shard& shard : shards_) {
      if (const char* why = shard.device->failure()) return why;
    }
    return nullptr;
  }

 private:
  struct Stream {
    std::int64_t received = 0;         // frames since the beginning; during flush also the frames after the end
    FillKind fill = FillKind::kZeros;  // its past
    bool fresh = true;                 // nothing has run since the reset: the slot's state is another stream's
  };

  // A device with its streams, and the pass that is put together or runs on it.
  struct Shard {
    std::unique_ptr<PassDevice> device;
    std::vector<PassEntry> entries;  // reserved, as the next
    std::vector<std::size_t> chunk_of_item;
    std::size_t next = 0;     // chunk of the call that is looked at next
    bool takes_even = false;  // in this round over the chunks: those that go in lockstep, and in the next the others
    bool has_more = false;    // some chunk will not have been taken to its end by these two
  };

  // Longer steps are many enough by themselves.
  static constexpr std::int64_t kMostEvenFrames = 64;

  // Slots fit 32 bits, and such divisions take half as long.
  std::uint32_t shard_count() const { return static_cast<std::uint32_t>(shards_.size()); }
  Shard& shard(std::int64_t slot) { return shards_[static_cast<std::uint32_t>(slot) % shard_count()]; }

  Stream& stream(std::int64_t slot) { return streams_[static_cast<std::size_t>(slot)]; }

  float* frame_to_hold(std::int64_t slot) { return frames_to_hold_.data() + slot * in_channels_; }

  PassEntry entry_of(std::int64_t slot, std::int64_t frames) {
    const Stream& stream = this->stream(slot);
    PassEntry entry;
    entry.slot = static_cast<std::uint32_t>(slot) / shard_count();
    entry.frames = frames;
    entry.received = stream.received;
    entry.held = stream.fill != FillKind::kZeros;
    entry.start_hold = entry.held && stream.fresh;
    entry.fresh = stream.fresh;
    return entry;
  }

  // The first of in_place_ that begins behind `place`: what may hold it is the one before.
  std::vector<std::span<const float>>::const_iterator first_behind(const float* place) const {
    return std::upper_bound(
        in_place_.begin(), in_place_.end(), place,
        [](const float* p, std::span<const float> samples) { return std::less<const float*>()(p, samples.data()); });
  }

  // Whether the device reads or writes the view's frames where they are. A view's corners are first and last in memory.
  bool is_in_place(const ConstFrameView& view) const {
    if (view.frame_stride != 1 || view.channel_stride < 0 || view.frames == 0) return false;
    const auto row_bytes = static_cast<std::uintptr_t>(shape_.in_place_floats) * sizeof(float);
    if (reinterpret_cast<std::uintptr_t>(view.data) % row_bytes != 0) return false;
    if (view.channels > 1 && view.channel_stride % shape_.in_place_floats != 0) return false;
    const auto behind = first_behind(view.data);
    if (behind == in_place_.begin()) return false;
    const std::span<const float> samples = *std::prev(behind);
    return std::less<const float*>()(&view(view.channels - 1, view.frames - 1), samples.data() + samples.size());
  }

  // Brings the entry's new frames to the device, from where they are or from staging.
  void set_input(PassDevice& device, PassEntry& entry, std::int64_t item, const ConstFrameView& frames) const {
    if (is_in_place(frames)) {
      entry.input = frames.data;
      entry.in_stride = frames.channel_stride;
    } else {
      entry.input = device.input(item);
      entry.in_stride = shape_.in_stride;
      copy(frames, {device.input(item), frames.channels, frames.frames, shape_.in_stride, 1});
    }
  }

  // Has the entry's output put into `output` from its frame `first` on, or into staging: always when some of it comes
  // too early to be wanted.
  void set_output(PassDevice& device, PassEntry& entry, std::int64_t item, const FrameView& output,
                  std::int64_t first) const {
    if (early_frames(entry) == 0 && is_in_place(output.slice(first, entry.frames))) {
      entry.output = output.data + first;
      entry.out_stride = output.channel_stride;
    } else {
      entry.output = device.output(item);
      entry.out_stride = shape_.out_stride;
    }
  }

  std::int64_t early_frames(const PassEntry& entry) const {
    return std::clamp<std::int64_t>(lookahead_ - entry.received, 0, entry.frames);
  }

  // Staged samples are planar, and so are many callers': a channel is then one run of memory.
  static void copy(const ConstFrameView& from, const FrameView& to) {
    if (from.frame_stride == 1 && to.frame_stride == 1) {
      if (from.channel_stride == from.frames && to.channel_stride == from.frames) {
        std::copy_n(from.data, from.channels * from.frames, to.data);
        return;
      }
      for (std::int64_t c = 0; c < from.channels; ++c) std::copy_n(&from(c, 0), from.frames, &to(c, 0));
      return;
    }
    copy_blocks(from.channels, from.frames, [&](std::int64_t c, std::int64_t t) { to(c, t) = from(c, t); });
  }

  // Whether the stream's next frames are all real in every layer, and nothing else is to be done for them.
  bool is_plain(std::int64_t slot) {
    const Stream& stream = this->stream(slot);
    return stream.fill == FillKind::kZeros ? stream.received >= lookahead_ : !stream.fresh;
  }

  // The number of frames that the first steps of most plain chunks have, if these are enough for lockstep; else 0.
  std::int64_t find_even_frames(std::span<const SlotChunk> chunks) {
    const std::int64_t least = shards_.front().device->lockstep_items() * std::ssize(shards_);
    if (least == 0 || std::ssize(chunks) < least || shape_.step_frames > kMostEvenFrames) return 0;
    std::array<std::int64_t, kMostEvenFrames + 1> counts{};
    for (const SlotChunk& chunk : chunks) {
      const std::int64_t frames = std::min(chunk.input.frames, shape_.step_frames);
      if (frames > 0 && is_plain(chunk.slot)) ++counts[static_cast<std::size_t>(frames)];
    }
    const auto most = std::max_element(counts.begin(), counts.end());
    return *most >= least ? most - counts.begin() : 0;
  }

  // The shard's next pass of the call: the next step of as many of its chunks as there are items, each at most once.
  void put_together(Shard& shard, std::span<const SlotChunk> chunks) {
    while (shard.entries.empty()) {
      if (shard.next == chunks.size()) {
        if (!shard.takes_even && !shard.has_more) return;
        if (!shard.takes_even) shard.has_more = false;
        shard.takes_even = !shard.takes_even && even_frames_ > 0;
        shard.next = 0;
      }
      for (; shard.next < chunks.size() && std::ssize(shard.entries) < shape_.max_items; ++shard.next) {
        const std::size_t i = shard.next;
        const std::int64_t left = chunks[i].input.frames - taken_[i];
        if (left == 0 || &this->shard(chunks[i].slot) != &shard) continue;
        const std::int64_t frames = std::min(left, shape_.step_frames);
        const bool is_even = frames == even_frames_ && is_plain(chunks[i].slot);
        // Who is left out of a round of the even ones comes in the next; who is in one of the others, or has frames
        // left behind it, in those after it.
        if (is_even == shard.takes_even) add_step(shard, chunks[i], i, frames);
        if (!shard.takes_even && (is_even || left > frames)) shard.has_more = true;
      }
    }
  }

  // Makes the next `frames` frames of chunk i an item of the pass to come.
  void add_step(Shard& shard, const SlotChunk& chunk, std::size_t i, std::int64_t frames) {
    const auto item = static_cast<std::int64_t>(shard.entries.size());
    PassEntry entry = entry_of(chunk.slot, frames);
    const std::int64_t first = taken_[i];
    set_input(*shard.device, entry, item, chunk.input.slice(first, frames));
    set_output(*shard.device, entry, item, chunk.output, chunk.frames_emitted);
    if (entry.start_hold) {
      float* held = shard.device->frame_to_hold(item);
      if (stream(chunk.slot).fill == FillKind::kFrame) {
        std::copy_n(frame_to_hold(chunk.slot), in_channels_, held);
      } else {
        for (std::int64_t c = 0; c < in_channels_; ++c) held[c] = chunk.input(c, first);
      }
    }
    shard.entries.push_back(entry);
    shard.chunk_of_item.push_back(i);
  }

  // Waits for the shard's pass and hands out its results; false: its device has failed.
  bool finish(Shard& shard, std::span<SlotChunk> chunks) {
    const bool done = shard.device->finish();
    for (std::size_t item = 0; done && item < shard.entries.size(); ++item) {
      const PassEntry& entry = shard.entries[item];
      const std::size_t i = shard.chunk_of_item[item];
      SlotChunk& chunk = chunks[i];
      chunk.frames_emitted +=
          emit(*shard.device, entry, static_cast<std::int64_t>(item), chunk.output, chunk.frames_emitted);
      taken_[i] += entry.frames;
      stream(chunk.slot).received += entry.frames;
      stream(chunk.slot).fresh = false;
    }
    shard.entries.clear();
    shard.chunk_of_item.clear();
    return done;
  }

  // Copies what an item gave, if it is staged, without its early frames, into a caller's view from its frame `first`
  // on; returns how many frames.
  std::int64_t emit(PassDevice& device, const PassEntry& entry, std::int64_t item, const FrameView& output,
                    std::int64_t first) const {
    const std::int64_t early = early_frames(entry);
    const std::int64_t frames = entry.frames - early;
    if (frames == 0) return 0;  // the view may be empty
    assert(first + frames <= output.frames);
    if (entry.output != device.output(item)) return frames;
    copy({device.output(item) + early, output.channels, frames, shape_.out_stride, 1}, output.slice(first, frames));
    return frames;
  }

  const PassShape shape_;
  const std::int64_t in_channels_;
  const std::int64_t lookahead_;
  std::vector<Shard> shards_;
  std::vector<Stream> streams_;
  std::vector<std::span<const float>> in_place_;  // memory of the host that the device reads and writes, by address
  std::vector<float> frames_to_hold_;             // [max_slots, in_channels], of streams reset with kFrame
  std::int64_t even_frames_ = 0;                  // that chunks of the call in lockstep have; 0: none are
  std::vector<std::int64_t> taken_;  // frames of each chunk of the call that passes have taken; room for all
};

}  // namespace

std::unique_ptr<Executor> make_pass_executor(const PassShape& shape, std::vector<std::unique_ptr<PassDevice>> devices) {
  return std::make_unique<PassExecutor>(shape, std::move(devices));
}

std::unique_ptr<Executor> make_pass_executor(const PassShape& shape, std::unique_ptr<PassDevice> device) {
  std::vector<std::unique_ptr<PassDevice>> devices;
  devices.push_back(std::move(device));
  return make_pass_executor(shape, std::move(devices));
}

}  // namespace halotap::kernels::cuda
