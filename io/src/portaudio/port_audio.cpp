#include "portaudio/port_audio.hpp"

#include <dlfcn.h>
#include <portaudio.h>

#include <chrono>
#include <cstddef>
#include <utility>

#include "portaudio/alsa_check.hpp"

namespace halotap::io {
namespace {

using pipeline::DeviceError;

constexpr std::chrono::seconds kLongestTurn{2};

// Never destroyed: a call that hangs may hold it when the program ends.
std::timed_mutex& library_mutex() {
  static auto& mutex = *new std::timed_mutex;
  return mutex;
}

// How many PortAudio objects there are. In a turn.
int& objects() {
  static int count = 0;
  return count;
}

// The host libraries that print. PortAudio brings them, or not: they are looked up and never linked to.
using AlsaHandler = void (*)(const char*, int, const char*, int, const char*, ...);
using SetAlsaHandler = int (*)(AlsaHandler);
using JackHandler = void (*)(const char*);
using SetJackHandler = void (*)(JackHandler);

template <typename Function>
Function find(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

void drop_words(const char*, int, const char*, int, const char*, ...) {}

// Null: ALSA's own, which prints. Of all threads: the ones that PortAudio calls back from are its own.
void set_alsa_handler(AlsaHandler handler) {
  static const auto kSet = find<SetAlsaHandler>("snd_lib_error_set_handler");
  if (kSet != nullptr) kSet(handler);
}

void silence_jack() {
  const JackHandler drop = [](const char*) {};
  for (const char* setter : {"jack_set_error_function", "jack_set_info_function"}) {
    if (const auto set = find<SetJackHandler>(setter)) set(drop);
  }
}

std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '.')) text.pop_back();
  return text;
}

// Whether one direction can be opened at the device's default rate. In a turn.
std::string problem_of(int device, const PaDeviceInfo& info, bool input) {
  PaStreamParameters parameters{};
  parameters.device = device;
  parameters.channelCount = 1;
  parameters.sampleFormat = paFloat32;
  parameters.suggestedLatency = input ? info.defaultHighInputLatency : info.defaultHighOutputLatency;
  const PaError error =
      Pa_IsFormatSupported(input ? &parameters : nullptr, input ? nullptr : &parameters, info.defaultSampleRate);
  return error == paFormatIsSupported ? std::string() : PortAudio::reason_of(error);
}

AudioDirection direction_of(int device, const PaDeviceInfo& info, bool input) {
  AudioDirection direction;
  direction.channels = input ? info.maxInputChannels : info.maxOutputChannels;
  if (direction.channels == 0) return direction;
  direction.is_default = device == (input ? Pa_GetDefaultInputDevice() : Pa_GetDefaultOutputDevice());
  direction.low_latency =
      std::chrono::duration<double>(input ? info.defaultLowInputLatency : info.defaultLowOutputLatency);
  direction.high_latency =
      std::chrono::duration<double>(input ? info.defaultHighInputLatency : info.defaultHighOutputLatency);
  direction.problem = problem_of(device, info, input);
  return direction;
}

}  // namespace

PortAudio::Turn::Turn() : lock_(library_mutex(), kLongestTurn) {
  if (!lock_.owns_lock()) {
    throw DeviceError("the sound system does not answer: a call into PortAudio has not returned for 2 s");
  }
}

PortAudio::PortAudio() {
  const Turn turn;
  silence_jack();
  std::string problem;
  if (objects() == 0) {
    set_alsa_handler(drop_words);
    problem = alsa_problem();
  }
  if (problem.empty()) {
    const PaError error = Pa_Initialize();
    if (error != paNoError) problem = "PortAudio cannot be initialised: " + reason_of(error);
  }
  if (!problem.empty()) {
    if (objects() == 0) set_alsa_handler(nullptr);
    throw DeviceError(problem);
  }
  ++objects();
}

PortAudio::~PortAudio() {
  try {
    const Turn turn;
    Pa_Terminate();
    if (--objects() == 0) set_alsa_handler(nullptr);
  } catch (const DeviceError&) {
    // A call hangs: so would this one. The system takes everything back when the program ends.
  }
}

AudioDevices PortAudio::devices() const {
  const Turn turn;
  AudioDevices result;
  for (int host = 0; host < Pa_GetHostApiCount(); ++host) {
    result.hosts.push_back(one_line(Pa_GetHostApiInfo(host)->name));
  }
  for (int device = 0; device < Pa_GetDeviceCount(); ++device) {
    const PaDeviceInfo& info = *Pa_GetDeviceInfo(device);
    AudioDevice entry;
    entry.index = device;
    entry.name = one_line(info.name);
    entry.host = result.hosts[static_cast<std::size_t>(info.hostApi)];
    entry.default_rate_hz = info.defaultSampleRate;
    entry.input = direction_of(device, info, true);
    entry.output = direction_of(device, info, false);
    result.devices.push_back(std::move(entry));
  }
  if (result.devices.empty()) {
    result.problem = "no sound device was found";
    for (std::size_t i = 0; i < result.hosts.size(); ++i) {
      result.problem += (i == 0 ? "; asked: " : ", ") + result.hosts[i];
    }
  }
  return result;
}

std::string PortAudio::reason_of(int error) {
  if (error != paUnanticipatedHostError) return one_line(Pa_GetErrorText(error));
  const PaHostErrorInfo* const host = Pa_GetLastHostErrorInfo();
  if (host == nullptr || host->errorText == nullptr || *host->errorText == '\0')
    return one_line(Pa_GetErrorText(error));
  return one_line(host->errorText);
}

}  // namespace halotap::io
