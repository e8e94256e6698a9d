// Any bytes as a model's YAML file, beside weights that fit the seeds: loaded, or refused with a ModelError.
#include <cstddef>
#include <cstdint>
#include <string>

#include "halotap/pipeline/errors.hpp"
#include "halotap/pipeline/model.hpp"
#include "pipeline/safetensors_builder.hpp"
#include "scratch_folder.hpp"

namespace {

// A folder with w.safetensors, gone when the process ends.
class ModelFolder {
 public:
  ModelFolder() {
    folder_.write("w.safetensors", halotap::test::SafetensorsBuilder()
                                       .add("a.dw.weight", {3, 1, 5}, 0.5F)
                                       .add("a.pw.weight", {4, 3, 1}, -0.25F)
                                       .add("b.pw.weight", {2, 4, 1}, 2.0F)
                                       .add("b.pw.bias", {2}, 1.0F)
                                       .bytes());
  }

  std::string write_model(const std::uint8_t* data, std::size_t size) const {
    return folder_.write("m.yaml", std::string(data, data + size));
  }

 private:
  halotap::test::ScratchFolder folder_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ModelFolder kFolder;
  try {
    halotap::pipeline::load_model(kFolder.write_model(data, size));
  } catch (const halotap::pipeline::ModelError&) {
  }
  return 0;
}
