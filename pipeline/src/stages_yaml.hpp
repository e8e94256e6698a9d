// Stages as a pipeline file has them.
#pragma once

#include "halotap/pipeline/stage.hpp"
#include "yaml_reader.hpp"

namespace halotap::pipeline {

// Reads one entry of the list `stages`. Throws ConfigError naming place, key, expected and got. [control]
StageEntry read_stage(const YamlValue& value);

}  // namespace halotap::pipeline
