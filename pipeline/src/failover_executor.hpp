// A device's executor with the CPU's behind it, which goes on where the device fails.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "halotap/kernels/executor.hpp"
#include "halotap/pipeline/clock.hpp"
#include "halotap/pipeline/engine.hpp"

namespace halotap::pipeline {

// Keeps, of every stream, the input that the CPU needs to be where the device is:
//
//     the last receptive_field - 1 frames   all that later outputs can depend on
//     its fill, and the frame of a kFrame   for a stream that is younger than that
//     the frames of the piece at the device its output may have taken the place of the caller's input, in part
//
// When the device fails, each stream is begun anew on the CPU and given the frames before the piece: its state then has
// the bits of a stream that ran there from its beginning. For behind frame n the halo of layer l depends on the stack's
// input from frame n - sum_(i <= l) halo_i on, which no layer has farther back than receptive_field - 1 frames; and
// these are lookahead frames at least, so that every later frame gives one. Then the piece is computed from what was
// kept, and the CPU has the streams for good.
//
// Longer chunks than a piece go through in pieces. All memory is allocated when it is made. One thread at a time.
class FailoverExecutor final : public kernels::Executor {
 public:
  // Chunks of up to spec.max_chunk_frames for spec.max_streams; `cpu` was made for as much and has run nothing. Throws
  // std::bad_alloc, also when this machine has less memory than is to be kept. [control]
  FailoverExecutor(const kernels::Stack& stack, const kernels::ExecutorSpec& spec, std::int64_t piece_frames,
                   std::unique_ptr<kernels::Executor> device, std::unique_ptr<kernels::Executor> cpu,
                   const Clock& clock);

  // How long a piece is best: 2^24 samples of all streams together, at least 64 frames of each, at most a chunk.
  // [any thread]
  static std::int64_t piece_frames(const kernels::Stack& stack, const kernels::ExecutorSpec& spec);

  void reset(std::int64_t slot, const kernels::Fill& fill) noexcept HALOTAP_NONBLOCKING override;
  void process(std::span<kernels::SlotChunk> chunks, std::int64_t worker) noexcept HALOTAP_NONBLOCKING override;
  std::int64_t flush(std::int64_t slot, kernels::FrameView output) noexcept HALOTAP_NONBLOCKING override;
  // The device's, which is kept when it has failed: the CPU reads and writes there as anywhere.
  float* allocate_samples(std::int64_t count) override;
  // On the device, kept here, and on the CPU.
  std::size_t state_bytes() const noexcept override;
  std::string description() const override;

  // Null until the device has failed. [any thread]
  const Failover* failover() const noexcept;

 private:
  struct Stream {
    std::int64_t received = 0;  // frames since its beginning
    kernels::FillKind fill = kernels::FillKind::kZeros;
    bool is_planar = false;  // how its frames are kept: as its first chunk came, where runs of it are worth a copy
  };

  bool is_on_cpu() const noexcept;
  void run_pieces(std::int64_t frames_before) noexcept;
  void keep(std::int64_t slot, const kernels::ConstFrameView& frames) noexcept;
  template <typename Take>
  void for_kept(std::int64_t slot, std::int64_t first, std::int64_t end, Take take) noexcept;
  void fail_over() noexcept;
  void rebuild(std::int64_t slot) noexcept;
  void compute_kept(kernels::SlotChunk& piece) noexcept;
  Stream& stream(std::int64_t slot) { return streams_[static_cast<std::size_t>(slot)]; }

  const std::int64_t in_channels_;
  const std::int64_t out_channels_;
  const std::int64_t history_frames_;  // receptive_field - 1
  const std::int64_t piece_frames_;
  const std::int64_t ring_frames_;  // history and a piece
  const std::unique_ptr<kernels::Executor> device_;
  const std::unique_ptr<kernels::Executor> cpu_;
  const Clock& clock_;
  std::vector<Stream> streams_;
  std::vector<float> kept_;  // [max_streams, ring_frames, in_channels] or planar; frame t at t modulo ring_frames
  std::vector<float> frames_to_hold_;       // [max_streams, in_channels]
  std::vector<float> unwanted_;             // [out_channels]: a frame that was given out already
  std::vector<kernels::SlotChunk> pieces_;  // of the call; reserved
  std::vector<std::size_t> chunk_of_piece_;
  Failover failover_;
  std::atomic<bool> is_on_cpu_{false};  // release when the failover is complete; acquire by who reads of it
};

}  // namespace halotap::pipeline
