// Sound devices on a machine without a sound card.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "scratch_folder.hpp"

namespace halotap::io {

// An ALSA configuration of its own with two devices: `fed`, which delivers what is written into a pipe, as fast as it
// is read (a file plugin over a null device), and `default`, which delivers silence, likewise. Whoever opens a device
// while this lives sees these.
class FedDevice {
 public:
  FedDevice();
  ~FedDevice();
  FedDevice(const FedDevice&) = delete;
  FedDevice& operator=(const FedDevice&) = delete;

  // What the device will deliver, all at once, before it is opened: one that runs dry delivers what lay in its buffer.
  // At most what a pipe holds, 2^18 samples. Zeros follow, for a device whose pipe is empty cannot even be closed.
  void feed(const std::vector<float>& samples);

 private:
  test::ScratchFolder folder_;
  int pipe_ = -1;
  std::atomic<bool> stop_{false};
  std::thread zeros_;
};

// Likewise, with a device `kept` that plays into a pipe, as fast as that is read.
class KeptDevice {
 public:
  KeptDevice();
  ~KeptDevice();
  KeptDevice(const KeptDevice&) = delete;
  KeptDevice& operator=(const KeptDevice&) = delete;

  // What has been played since the first sample that was not 0, `count` of them. After the device was closed.
  std::vector<float> played(std::size_t count);

 private:
  void read_some();

  test::ScratchFolder folder_;
  int pipe_ = -1;
  std::vector<float> played_;
  std::atomic<bool> stop_{false};
  std::thread reader_;
};

// A PulseAudio server of its own with a null sink `ci` of two channels at 48 kHz; its monitor is what `pulse` records.
class PulseServer {
 public:
  PulseServer();
  ~PulseServer();
  PulseServer(const PulseServer&) = delete;
  PulseServer& operator=(const PulseServer&) = delete;

  // Why there is none: a program or a plugin that is not installed; empty when it runs.
  const std::string& missing() const { return missing_; }
  // Plays a WAV file into the sink, to its end.
  void play(const std::string& wav) const;
  void signal(int number) const;
  // Starts it, again after a signal that ended it.
  void start();

 private:
  void end();

  test::ScratchFolder folder_;
  std::string missing_;
  pid_t server_ = -1;
};

// A JACK server of its own with a device `system` of two channels each way at 48 kHz, which delivers silence. Its clock
// is a thread that sleeps.
class JackServer {
 public:
  JackServer();
  ~JackServer();
  JackServer(const JackServer&) = delete;
  JackServer& operator=(const JackServer&) = delete;

  // As PulseServer's.
  const std::string& missing() const { return missing_; }
  void signal(int number) const;
  void start();

 private:
  void end();

  int lock_ = -1;  // held while it is there: one server at a time, whoever else runs tests
  test::ScratchFolder folder_;
  std::string missing_;
  pid_t server_ = -1;
};

}  // namespace halotap::io
