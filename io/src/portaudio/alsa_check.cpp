#include "portaudio/alsa_check.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace halotap::io {
namespace {

// ALSA's own types stay unknown: PortAudio brings the library, or not, and it is looked up and never linked to.
struct Config;
struct Iterator;

template <typename Symbol>
Symbol find(const char* name) {
  return reinterpret_cast<Symbol>(dlsym(RTLD_DEFAULT, name));
}

// Those that PortAudio passes over.
bool is_passed_over(std::string_view name) {
  constexpr std::array<std::string_view, 10> kNames = {"hw",   "plughw", "plug", "dsnoop", "tee",
                                                       "file", "null",   "shm",  "cards",  "rate_convert"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

}  // namespace

std::string alsa_problem() {
  const auto next_card = find<int (*)(int*)>("snd_card_next");
  const auto update = find<int (*)()>("snd_config_update");
  const auto forget = find<int (*)()>("snd_config_update_free_global");
  const auto reason_of = find<const char* (*)(int)>("snd_strerror");
  const auto top = find<Config**>("snd_config");
  const auto search = find<int (*)(Config*, const char*, Config**)>("snd_config_search");
  const auto first = find<Iterator* (*)(const Config*)>("snd_config_iterator_first");
  const auto next = find<Iterator* (*)(const Iterator*)>("snd_config_iterator_next");
  const auto end = find<Iterator* (*)(const Config*)>("snd_config_iterator_end");
  const auto entry = find<Config* (*)(const Iterator*)>("snd_config_iterator_entry");
  const auto get_id = find<int (*)(const Config*, const char**)>("snd_config_get_id");
  const bool is_there =
      next_card && update && forget && reason_of && top && search && first && next && end && entry && get_id;
  if (!is_there) return {};

  const int error = update();
  std::string problem;
  if (error < 0) {
    problem = std::string("ALSA's configuration cannot be read: ") + reason_of(error);
  } else {
    int card = -1;
    bool has_device = next_card(&card) >= 0 && card >= 0;
    Config* devices = nullptr;
    if (!has_device && search(*top, "pcm", &devices) >= 0) {
      for (const Iterator* at = first(devices); at != end(devices) && !has_device; at = next(at)) {
        const char* name = nullptr;
        has_device = get_id(entry(at), &name) >= 0 && !is_passed_over(name);
      }
    }
    if (!has_device) problem = "no sound device was found: ALSA has no card, and its configuration names no device";
  }
  forget();  // or a configuration that is mended would not be read again
  return problem;
}

}  // namespace halotap::io
