// Any bytes as a pipeline file: loaded, or refused with a ConfigError. Each stage it asks for then takes a few frames.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "halotap/pipeline/config.hpp"
#include "halotap/pipeline/errors.hpp"
#include "scratch_folder.hpp"

namespace {

namespace pipeline = halotap::pipeline;

void run(const pipeline::StageEntry& entry) {
  const pipeline::StageFormat input{.channels = 2, .rate_hz = 1000, .channel_names = {"speech", "music"}};
  const auto stage = entry.make();
  const pipeline::StageOutput output = stage->prepare(input);
  std::vector<float> result(static_cast<std::size_t>(output.channels));
  pipeline::EventList events(8);
  const float frames[][2] = {{0, 1}, {NAN, -1}, {INFINITY, 0.5F}, {1, 1}};
  for (const auto& frame : frames) stage->process(frame, result.data(), events);
  stage->flush(result.data(), events);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const halotap::test::ScratchFolder kFolder;
  try {
    const auto config = pipeline::load_pipeline_config(kFolder.write("p.yaml", std::string(data, data + size)));
    for (const pipeline::StageEntry& entry : config.stages) run(entry);
  } catch (const pipeline::ConfigError&) {
  }
  return 0;
}
