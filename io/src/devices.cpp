#include "halotap/io/devices.hpp"

#ifdef HALOTAP_HAVE_PORTAUDIO
#include <future>
#include <thread>
#include <utility>

#include "portaudio/port_audio.hpp"
#include "realtime/thread_name.hpp"
#endif

namespace halotap::io {
namespace {

AudioDevices none_because(const std::string& problem) {
  AudioDevices none;
  none.problem = problem;
  return none;
}

}  // namespace

#ifdef HALOTAP_HAVE_PORTAUDIO
AudioDevices list_audio_devices() {
  constexpr std::chrono::seconds kPatience{10};
  std::promise<AudioDevices> promise;
  std::future<AudioDevices> answer = promise.get_future();
  // On a thread of its own, which is left behind when a device or a sound server never answers.
  std::thread([answered = std::move(promise)]() mutable {
    name_this_thread("halotap-devices");
    try {
      answered.set_value(PortAudio().devices());
    } catch (const pipeline::DeviceError& error) {
      answered.set_value(none_because(error.what()));
    }
  }).detach();
  if (answer.wait_for(kPatience) != std::future_status::ready) {
    return none_because("the sound system has not answered for 10 s");
  }
  return answer.get();
}
#else
AudioDevices list_audio_devices() { return none_because("this build has no sound device support (PortAudio)"); }
#endif

}  // namespace halotap::io
