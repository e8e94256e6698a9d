// The PortAudio library, held open.
#pragma once

#include <mutex>
#include <string>

#include "halotap/io/devices.hpp"
#include "halotap/pipeline/errors.hpp"

namespace halotap::io {

// Keeps PortAudio initialised while it lives; several may, on any threads. PortAudio is not thread-safe and some of its
// calls hang with the sound server behind them, so that all of ours go through one lock that is waited for 2 s at most.
// The devices are those of the moment at which the first of several objects was made.
//
// ALSA and JACK print tens of lines on standard error while they look for devices, and some when one fails: their words
// are dropped, ALSA's until the last of the objects is gone, JACK's for good. [control]
class PortAudio {
 public:
  // One call into the library, or several that belong together.
  class Turn {
   public:
    // Throws DeviceError when another turn has not ended within 2 s.
    Turn();

   private:
    std::unique_lock<std::timed_mutex> lock_;
  };

  // Throws DeviceError when the library cannot be initialised.
  PortAudio();
  ~PortAudio();
  PortAudio(const PortAudio&) = delete;
  PortAudio& operator=(const PortAudio&) = delete;

  AudioDevices devices() const;

  // Why a call failed: PortAudio's words, or its host's where PortAudio only says that the host failed. In a turn.
  static std::string reason_of(int error);
};

}  // namespace halotap::io
