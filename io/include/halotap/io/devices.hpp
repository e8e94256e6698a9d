// Sound devices, as the system lists them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace halotap::io {

// One direction of a device.
struct AudioDirection {
  std::int64_t channels = 0;  // the most it claims; 0: the device has no such direction. Plugins claim 128.
  bool is_default = false;    // what `portaudio://default` means
  // What the device suggests: for a loop that must answer soon, and for one that must not lose a frame.
  std::chrono::duration<double> low_latency{0};
  std::chrono::duration<double> high_latency{0};
  std::string problem;  // why it cannot be opened at its default rate, in one line; empty when it can
};

struct AudioDevice {
  int index = 0;     // names it in an address: portaudio://0
  std::string name;  // so does this: portaudio://pulse
  std::string host;  // the sound system behind it: "ALSA", "JACK Audio Connection Kit"
  double default_rate_hz = 0;
  AudioDirection input;
  AudioDirection output;
};

struct AudioDevices {
  std::vector<std::string> hosts;    // sound systems that answered, with and without devices
  std::vector<AudioDevice> devices;  // in the order of their index
  std::string problem;               // why there is no device, in one line; empty when there is one
};

// Asks every sound system for its devices, and opens each for an instant to see whether it can be. What the sound
// systems print meanwhile is kept from standard error. Throws nothing for a missing library or device:
// AudioDevices::problem says it. [control]
AudioDevices list_audio_devices();

}  // namespace halotap::io
