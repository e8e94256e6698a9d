// In a build without libsndfile.
#include "halotap/io/recorder.hpp"
#include "halotap/pipeline/errors.hpp"

namespace halotap::io {

struct Recorder::Impl {};

Recorder::Recorder(const std::string& path, const SourceInfo&) {
  throw pipeline::ConfigError(path + ": record: this build has no audio file support (libsndfile)");
}
Recorder::~Recorder() = default;
void Recorder::begin() {}
void Recorder::push(const float*, std::int64_t) noexcept HALOTAP_NONBLOCKING {}
void Recorder::begin_next() noexcept HALOTAP_NONBLOCKING {}
RecorderCounters Recorder::finish() { return {}; }

}  // namespace halotap::io
