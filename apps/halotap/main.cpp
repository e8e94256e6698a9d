// The command line.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench.hpp"
#include "command.hpp"
#include "devices.hpp"
#include "halotap/pipeline/build_info.hpp"
#include "halotap/pipeline/errors.hpp"
#include "inspect.hpp"
#include "interrupt.hpp"
#include "message.hpp"
#include "plan.hpp"
#include "replay.hpp"
#include "run.hpp"
#include "verify.hpp"

namespace halotap::apps {
namespace {

// A caller may start the program with a standard file closed. The next file opened would take that descriptor, and
// messages or results would be written into it. What is opened in its place here refuses every transfer.
void hold_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) < 0) open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

// The command that the user got to: "halotap bench block".
const CLI::App& reached(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : reached(*chosen.front());
}

std::string path_of(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : path_of(*app.get_parent()) + ' ' + app.get_name();
}

void explain(const CLI::ParseError& error, const CLI::App& app) {
  std::string message = error.what();
  // The library asks for a command even when there is a word that should have been one.
  const std::vector<std::string> rest = app.remaining();
  if (app.get_require_subcommand_min() > 0 && !rest.empty()) {
    message = "expected a command" + (app.get_parent() == nullptr ? "" : " of " + app.get_name()) + ", got '" +
              rest.front() + "'";
  }
  say(message + " (see " + path_of(app) + " --help)");
}

ExitCode run_command_line(int argc, char** argv) {
  CLI::App app("Runs temporal convolution networks on live streams and recordings.", "halotap");
  app.set_version_flag("--version", std::string("halotap ") + pipeline::kVersion + " (commit " + pipeline::kCommit +
                                        "; " + pipeline::kCompiler + ")");
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  app.footer(
      "Results go to standard output, messages and progress to standard error.\n"
      "Exit codes: 0 done; 1 a check failed, or a latency budget or the frames' pace is not kept; 2 bad usage,\n"
      "configuration or data; 3 a device or backend is missing or failed.\n"
      "'halotap COMMAND --help' has the options and an example.");
  Command chosen;
  add_replay(app, chosen);
  add_verify(app, chosen);
  add_inspect(app, chosen);
  add_run(app, chosen);
  add_plan(app, chosen);
  add_bench(app, chosen);
  add_devices(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      app.exit(error);  // prints the help or the version asked for
      return ExitCode::kDone;
    }
    explain(error, reached(app));
    return ExitCode::kBadInput;
  }
  return chosen();
}

}  // namespace
}  // namespace halotap::apps

int main(int argc, char** argv) {
  using halotap::apps::ExitCode;
  using halotap::apps::say;
  halotap::apps::hold_standard_descriptors();
  halotap::apps::report_failed_writes_as_errors();
  ExitCode code = ExitCode::kBadInput;
  try {
    code = halotap::apps::run_command_line(argc, argv);
    errno = 0;
    if (!std::cout.flush()) {
      say(std::string("standard output: cannot be written") +
          (errno == 0 ? "" : std::string(": ") + std::strerror(errno)));
      code = ExitCode::kBadInput;
    }
  } catch (const halotap::pipeline::DeviceError& error) {
    say(error.what());
    code = ExitCode::kDeviceFailed;
  } catch (const halotap::pipeline::BudgetError& error) {
    say(error.what());
    code = ExitCode::kCheckFailed;
  } catch (const std::bad_alloc&) {
    say("out of memory");
  } catch (const std::length_error&) {
    say("out of memory: more was asked for than any memory holds");
  } catch (const std::exception& error) {
    say(error.what());
  }
  return static_cast<int>(code);
}
