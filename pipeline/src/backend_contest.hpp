// Which backend is faster for a model, timed on this machine and remembered.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "halotap/kernels/executor.hpp"
#include "halotap/pipeline/clock.hpp"
#include "halotap/pipeline/engine.hpp"

namespace halotap::pipeline {

// What is timed: a call with a chunk of every stream.
struct Contest {
  std::int64_t streams = 1;
  std::int64_t chunk_frames = 1;
};

// Fewer multiply-accumulates a call are no work for a card, whichever: they take a core 5 us, and a card that long to
// be asked. A small model thus opens no driver.
inline constexpr std::int64_t kLeastContestMacs = 100'000;

// How long the calling thread has been ready to run while others had its processor, since it began; always 0 where the
// system does not tell. [any thread]
std::chrono::nanoseconds time_kept_waiting();

// Runs both in turn on noise, warm, until each has had 1000 calls or a quarter of a second is over, and once at least.
// A call that keeps the CPU for longer than 100 ms is cut off there, and what is left of it counted in proportion. Of
// more than 2^22 samples a call the others' are the same again. Both end with every slot as fresh. [control]
BackendFigures time_backends(kernels::Executor& cpu, kernels::Executor& cuda, const kernels::Stack& stack,
                             const Contest& contest, const Clock& clock,
                             std::chrono::nanoseconds (*kept_waiting)() = time_kept_waiting);

// All that the figures depend on, a line each: halotap's version and commit, a hash of the model's layers and weights,
// the processor and its SIMD level, the card, and the contest. [control]
std::string contest_key(const kernels::Stack& stack, const std::string& cpu, const std::string& cuda,
                        const Contest& contest);

// Where figures with this key are kept: in halotap/ under XDG_CACHE_HOME, or under ~/.cache; nowhere when there is
// neither, or the environment variable HALOTAP_BACKEND_CACHE is "off". Throws std::invalid_argument when that is
// something else. [control]
std::optional<std::filesystem::path> figures_file(const std::string& key);
// The figures in the file; nothing when it is not there, has another key or is not whole. [control]
std::optional<BackendFigures> load_figures(const std::filesystem::path& file, const std::string& key);
// Puts the figures into the file, in the place of what was there at once. That it cannot be written is no error: they
// are measured again. [control]
void store_figures(const std::filesystem::path& file, const std::string& key, const BackendFigures& figures) noexcept;

// The figures with this key: those that this process has found before, the file's, or what `time` gives, which the file
// keeps unless they were disturbed. A process never has two for one key, so that its engines agree. Throws as
// figures_file and what `time` throws. [control]
BackendFigures find_figures(const std::string& key, const std::function<BackendFigures()>& time);

}  // namespace halotap::pipeline
