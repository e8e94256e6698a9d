// Runs the command line as a user would, and keeps what it said.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace halotap::apps {

struct Outcome {
  int exit_code = -1;         // -1: ended by a signal
  std::string out;            // standard output
  std::string err;            // standard error, or what the terminal in its place showed
  std::int64_t peak_kib = 0;  // the most memory that was resident

  // Standard output as one JSON object; fails the test when it is not.
  nlohmann::json json() const;
  // The same of every line of a text.
  static std::vector<nlohmann::json> json_lines(const std::string& text);
};

struct Surroundings {
  std::optional<std::filesystem::path> standard_output = {};  // opened for writing
  std::vector<int> closed = {};                               // descriptors of standard files that are closed
  std::optional<std::size_t> file_size_limit = {};            // bytes a file may grow to
  bool terminal = false;                                      // standard error is a terminal
  bool card = false;                          // the program has one, on the host (pipeline/host_card.hpp)
  std::function<void(pid_t)> meanwhile = {};  // called with the process while it runs
};

// Whether the system lends pseudo-terminals: a container or a chroot without /dev/pts does not.
bool has_terminals();

Outcome run_halotap(const std::vector<std::string>& arguments, const Surroundings& surroundings = {});

// A file of a golden case: golden("stack_same", "x.npy").
std::string golden(const std::string& name, const std::string& file);

}  // namespace halotap::apps
