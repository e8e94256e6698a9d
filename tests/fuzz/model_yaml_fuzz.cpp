// Any bytes as a model's YAML file, beside weights that fit the seeds: loaded, or refused with a ModelError.
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "halotap/pipeline/errors.hpp"
#include "halotap/pipeline/model.hpp"
#include "pipeline/safetensors_builder.hpp"

namespace {

// A folder with w.safetensors, gone when the process ends.
class ModelFolder {
 public:
  ModelFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "halotap_fuzz_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
    std::ofstream(path_ / "w.safetensors", std::ios::binary) << halotap::tests::SafetensorsBuilder()
                                                                    .add("a.dw.weight", {3, 1, 5}, 0.5F)
                                                                    .add("a.pw.weight", {4, 3, 1}, -0.25F)
                                                                    .add("b.pw.weight", {2, 4, 1}, 2.0F)
                                                                    .add("b.pw.bias", {2}, 1.0F)
                                                                    .bytes();
  }
  ~ModelFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::filesystem::path write_model(const std::uint8_t* data, std::size_t size) const {
    const std::filesystem::path file = path_ / "m.yaml";
    std::ofstream(file, std::ios::binary)
        .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
    return file;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ModelFolder folder;
  try {
    halotap::pipeline::load_model(folder.write_model(data, size));
  } catch (const halotap::pipeline::ModelError&) {
  }
  return 0;
}
