// A model file, read and checked.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "halotap/kernels/stack.hpp"

namespace halotap::pipeline {

// A network and what its channels mean. Immutable once loaded; engines share the stack.
struct Model {
  std::string name;
  double frame_rate_hz = 0;                  // frames a second the network was made for, > 0, at most 1e9
  std::vector<std::string> input_channels;   // names, in order; empty when the file gives none
  std::vector<std::string> output_channels;  // likewise
  std::shared_ptr<const kernels::Stack> stack;
  std::vector<std::filesystem::path> files;  // what it was read from, so that no output overwrites it
};

// Reads a `format: halotap-model/1` YAML file and the safetensors file it names (docs/model-file.md).
//
// Throws ModelError naming file, key, expected and got when either file cannot be read, is malformed or larger than
// allowed, has an unknown, repeated, missing or wrongly typed key, lacks a tensor, has one that no layer uses, has one
// of the wrong shape or type or with a number that is not finite, or when the layers do not fit together. [control]
Model load_model(const std::filesystem::path& file);

}  // namespace halotap::pipeline
