#include "npy/npy_sink.hpp"

#include "npy/npy_writer.hpp"
#include "output_file.hpp"

namespace halotap::io {

namespace {

class NpySink : public Sink {
 public:
  NpySink(const std::string& path, const SinkSpec& spec)
      : output_(path), writer_(output_.file(), spec, output_.folder()) {}

  void write(const float* samples, std::int64_t frames) override { writer_.write(samples, frames); }

  void finish() override {
    writer_.finish();
    output_.finish();
  }

 private:
  OutputFile output_;
  NpyWriter writer_;
};

}  // namespace

std::unique_ptr<Sink> open_npy_sink(Address& address, const SinkSpec& spec) {
  return std::make_unique<NpySink>(address.path(), spec);
}

}  // namespace halotap::io
