#include "program.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <sstream>
#include <stdexcept>

namespace halotap::apps {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File temporary_file() {
  File file(std::tmpfile(), std::fclose);
  if (!file) throw std::runtime_error("no temporary file");
  return file;
}

std::string contents_of(std::FILE* file) {
  std::string text;
  std::array<char, 4096> part;
  std::rewind(file);
  while (const std::size_t count = std::fread(part.data(), 1, part.size(), file)) text.append(part.data(), count);
  return text;
}

// What the terminal's other end shows until its last user is gone.
std::string read_terminal(int terminal) {
  std::string text;
  std::array<char, 4096> part;
  while (true) {
    const ssize_t count = read(terminal, part.data(), part.size());
    if (count <= 0) return text;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
}

}  // namespace

nlohmann::json Outcome::json() const {
  const nlohmann::json parsed = nlohmann::json::parse(out, nullptr, false);
  EXPECT_TRUE(parsed.is_object()) << "standard output: " << out << "\nstandard error: " << err;
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 1);
  return parsed.is_object() ? parsed : nlohmann::json::object();
}

std::vector<nlohmann::json> Outcome::json_lines(const std::string& text) {
  std::vector<nlohmann::json> objects;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    objects.push_back(nlohmann::json::parse(line, nullptr, false));
    EXPECT_TRUE(objects.back().is_object()) << line;
  }
  return objects;
}

bool has_terminals() {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal >= 0) close(terminal);
  return terminal >= 0;
}

Outcome run_halotap(const std::vector<std::string>& arguments, const Surroundings& surroundings) {
  const File out = temporary_file();
  const File err = temporary_file();
  int terminal = -1;
  std::string terminal_name;
  if (surroundings.terminal) {
    terminal = posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) throw std::runtime_error("no terminal");
    terminal_name = ptsname(terminal);
  }
  std::vector<std::string> words{surroundings.card ? HALOTAP_PROGRAM_WITH_CARD : HALOTAP_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  const pid_t child = fork();
  if (child == 0) {
    const int out_fd = surroundings.standard_output
                           ? open(surroundings.standard_output->c_str(), O_WRONLY | O_CREAT, 0600)
                           : fileno(out.get());
    const int err_fd = surroundings.terminal ? open(terminal_name.c_str(), O_RDWR | O_NOCTTY) : fileno(err.get());
    if (dup2(out_fd, STDOUT_FILENO) < 0 || dup2(err_fd, STDERR_FILENO) < 0) _exit(99);
    if (terminal >= 0) {
      close(terminal);
      close(err_fd);
    }
    if (surroundings.file_size_limit) {
      const rlimit limit{*surroundings.file_size_limit, *surroundings.file_size_limit};
      if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(99);
    }
    for (const int descriptor : surroundings.closed) close(descriptor);
    // A card is tests/cuda/run.sh's: which backend auto takes, and says that it took, is not to depend on the machine.
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    execv(argv.front(), argv.data());
    _exit(99);
  }
  if (child < 0) throw std::runtime_error("fork failed");
  if (surroundings.meanwhile) surroundings.meanwhile(child);

  Outcome outcome;
  if (terminal >= 0) {
    outcome.err = read_terminal(terminal);
    close(terminal);
  }
  int status = 0;
  rusage usage{};
  if (wait4(child, &status, 0, &usage) != child) throw std::runtime_error("wait4 failed");
  outcome.peak_kib = usage.ru_maxrss;
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  outcome.out = contents_of(out.get());
  if (terminal < 0) outcome.err = contents_of(err.get());
  return outcome;
}

std::string golden(const std::string& name, const std::string& file) {
  return std::string(HALOTAP_TEST_DATA) + "/golden/" + name + "/" + file;
}

}  // namespace halotap::apps
