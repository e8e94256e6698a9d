// A source with some of another's channels.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "halotap/io/source.hpp"

namespace halotap::io {

// Gives the channels at `indices` (each below the inner source's count; one may come twice), in that order. [control]
std::unique_ptr<Source> selected(std::unique_ptr<Source> source, std::vector<std::int64_t> indices);

}  // namespace halotap::io
