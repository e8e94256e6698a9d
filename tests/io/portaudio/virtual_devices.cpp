#include "portaudio/virtual_devices.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <thread>

namespace halotap::io {
namespace {

constexpr int kPipeBytes = 1 << 20;
// Always the same: JACK's list has room for eight servers, and one that was killed stays on it until the next of its
// name.
constexpr const char* kJackName = "halotap_test";

pid_t spawn(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that crashes leaves no server behind
    const int nowhere = open("/dev/null", O_RDWR);
    for (const int descriptor : {0, 1, 2}) dup2(nowhere, descriptor);
    execvp(argv.front(), argv.data());
    _exit(127);
  }
  return child;
}

int exit_code(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A pipe with a name, open for both directions: neither side waits for the other, and none sees an end.
int open_pipe(const std::string& path) {
  if (mkfifo(path.c_str(), 0600) != 0) throw std::runtime_error("no fifo");
  const int pipe = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (pipe < 0 || fcntl(pipe, F_SETPIPE_SZ, kPipeBytes) < kPipeBytes) throw std::runtime_error("no large pipe");
  return pipe;
}

void use_configuration(const test::ScratchFolder& folder, const std::string& text) {
  setenv("ALSA_CONFIG_PATH", folder.write("asound.conf", text).c_str(), 1);
  setenv("JACK_NO_START_SERVER", "1", 1);
}

bool is_installed(const std::string& program) { return exit_code(spawn({"sh", "-c", "command -v " + program})) == 0; }

}  // namespace

FedDevice::FedDevice() : pipe_(open_pipe(folder_.file("pipe"))) {
  use_configuration(folder_,
                    "pcm.!default { type null hint.show on }\n"
                    "pcm.fed { type file slave.pcm { type null } file /dev/null infile \"" +
                        folder_.file("pipe") + "\" format raw hint { show on description fed } }\n");
}

FedDevice::~FedDevice() {
  stop_ = true;
  if (zeros_.joinable()) zeros_.join();
  unsetenv("ALSA_CONFIG_PATH");
  close(pipe_);
}

void FedDevice::feed(const std::vector<float>& samples) {
  const std::size_t bytes = samples.size() * sizeof(float);
  ASSERT_LE(bytes, static_cast<std::size_t>(kPipeBytes));
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t count = write(pipe_, reinterpret_cast<const char*>(samples.data()) + done, bytes - done);
    ASSERT_GT(count, 0);
    done += static_cast<std::size_t>(count);
  }
  fcntl(pipe_, F_SETFL, fcntl(pipe_, F_GETFL) | O_NONBLOCK);
  zeros_ = std::thread([this] {
    const std::vector<char> zeros(1 << 16);
    while (!stop_) {
      pollfd room{pipe_, POLLOUT, 0};
      if (poll(&room, 1, 5) == 1 && write(pipe_, zeros.data(), zeros.size()) < 0) std::this_thread::yield();
    }
  });
}

KeptDevice::KeptDevice() : pipe_(open_pipe(folder_.file("pipe"))) {
  use_configuration(folder_,
                    "pcm.!default { type null hint.show on }\npcm.kept { type file slave.pcm { type null } file \"" +
                        folder_.file("pipe") + "\" format raw hint { show on description kept } }\n");
  fcntl(pipe_, F_SETFL, fcntl(pipe_, F_GETFL) | O_NONBLOCK);
  reader_ = std::thread([this] {
    while (!stop_) {
      pollfd content{pipe_, POLLIN, 0};
      if (poll(&content, 1, 5) == 1) read_some();
    }
  });
}

KeptDevice::~KeptDevice() {
  stop_ = true;
  if (reader_.joinable()) reader_.join();
  unsetenv("ALSA_CONFIG_PATH");
  close(pipe_);
}

void KeptDevice::read_some() {
  constexpr std::size_t kMostKept = 1 << 20;
  std::vector<float> part(1 << 14);
  const ssize_t bytes = read(pipe_, part.data(), part.size() * sizeof(float));
  const auto end = part.begin() + (bytes > 0 ? bytes / static_cast<ssize_t>(sizeof(float)) : 0);
  auto begin = part.begin();
  if (played_.empty()) begin = std::find_if(begin, end, [](float sample) { return sample != 0; });
  if (played_.size() < kMostKept) played_.insert(played_.end(), begin, end);
}

std::vector<float> KeptDevice::played(std::size_t count) {
  stop_ = true;
  reader_.join();
  for (pollfd content{pipe_, POLLIN, 0}; poll(&content, 1, 0) == 1;) read_some();
  EXPECT_GE(played_.size(), count);
  played_.resize(count);
  return played_;
}

PulseServer::PulseServer() {
  const std::string plugins =
      "/usr/lib/" +
      std::string(std::filesystem::exists("/usr/lib/x86_64-linux-gnu") ? "x86_64-linux-gnu" : "aarch64-linux-gnu") +
      "/alsa-lib/libasound_module_pcm_pulse.so";
  if (!is_installed("pulseaudio") || !is_installed("pactl") || !is_installed("paplay")) {
    missing_ = "pulseaudio and pulseaudio-utils are not installed";
  } else if (!std::filesystem::exists(plugins)) {
    missing_ = "libasound2-plugins is not installed";
  }
  if (!missing_.empty()) return;
  const std::string home = folder_.path().string();
  setenv("XDG_RUNTIME_DIR", home.c_str(), 1);
  setenv("HOME", home.c_str(), 1);
  setenv("PULSE_SERVER", ("unix:" + folder_.file("socket")).c_str(), 1);
  setenv("PULSE_SINK", "ci", 1);
  setenv("PULSE_SOURCE", "ci.monitor", 1);
  setenv("JACK_NO_START_SERVER", "1", 1);
  start();
}

PulseServer::~PulseServer() { end(); }

void PulseServer::start() {
  end();
  std::filesystem::remove(folder_.file("socket"));
  server_ = spawn({"pulseaudio", "-n", "--daemonize=no", "--use-pid-file=no", "--exit-idle-time=-1", "--disallow-exit",
                   // Without norewinds some seconds go missing when a player ends.
                   "-L", "module-null-sink sink_name=ci rate=48000 channels=2 format=float32le norewinds=1", "-L",
                   "module-native-protocol-unix auth-anonymous=1 socket=" + folder_.file("socket")});
  for (int i = 0; i < 200; ++i) {
    if (exit_code(spawn({"pactl", "info"})) == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  missing_ = "pulseaudio does not start here";
}

void PulseServer::end() {
  if (server_ < 0) return;
  kill(server_, SIGKILL);
  waitpid(server_, nullptr, 0);
  server_ = -1;
}

void PulseServer::play(const std::string& wav) const { EXPECT_EQ(exit_code(spawn({"paplay", wav})), 0); }

void PulseServer::signal(int number) const { kill(server_, number); }

JackServer::JackServer()
    : lock_(open((std::filesystem::temp_directory_path() / "halotap-test-jack.lock").c_str(),
                 O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
  flock(lock_, LOCK_EX);
  if (!is_installed("jackd") || !is_installed("jack_lsp")) {
    missing_ = "jackd2 is not installed";
    return;
  }
  use_configuration(folder_, "pcm.!default { type null }\n");
  setenv("JACK_DEFAULT_SERVER", kJackName, 1);
  start();
}

JackServer::~JackServer() {
  end();
  unsetenv("ALSA_CONFIG_PATH");
  unsetenv("JACK_DEFAULT_SERVER");
  close(lock_);
}

void JackServer::start() {
  end();
  server_ = spawn(
      {"jackd", "--no-realtime", "-n", kJackName, "-d", "dummy", "-r", "48000", "-p", "256", "-C", "2", "-P", "2"});
  for (int i = 0; i < 200; ++i) {
    // The server answers before its device is there.
    if (exit_code(spawn({"sh", "-c", "jack_lsp | grep -q system:capture_2"})) == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  missing_ = "jackd does not start here";
}

void JackServer::end() {
  if (server_ < 0) return;
  // So that it signs off from JACK's list of servers.
  kill(server_, SIGCONT);
  kill(server_, SIGTERM);
  for (int i = 0; i < 200 && waitpid(server_, nullptr, WNOHANG) == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (i == 150) kill(server_, SIGKILL);
  }
  server_ = -1;
}

void JackServer::signal(int number) const { kill(server_, number); }

}  // namespace halotap::io
