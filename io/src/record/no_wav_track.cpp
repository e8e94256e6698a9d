// In a build without libsndfile.
#include "halotap/pipeline/errors.hpp"
#include "record/wav_track.hpp"

namespace halotap::io {

struct WavTrack::Impl {};

WavTrack::WavTrack(const WavTrackSpec& spec) {
  throw pipeline::ConfigError(spec.path + ": " + spec.key + ": this build has no audio file support (libsndfile)");
}
WavTrack::~WavTrack() = default;
void WavTrack::check() const {}
void WavTrack::begin() {}
void WavTrack::push(const float*, std::int64_t) noexcept HALOTAP_NONBLOCKING {}
void WavTrack::begin_next() noexcept HALOTAP_NONBLOCKING {}
RecorderCounters WavTrack::finish() { return {}; }

}  // namespace halotap::io
