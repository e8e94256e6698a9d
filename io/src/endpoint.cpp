#include "halotap/io/endpoint.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "address.hpp"
#include "csv/csv_sink.hpp"
#include "csv/csv_source.hpp"
#include "halotap/pipeline/errors.hpp"
#include "in_quotes.hpp"
#include "npy/npy_sink.hpp"
#include "npy/npy_source.hpp"
#include "record/numbered.hpp"
#include "select/selected_source.hpp"
#include "synth/synth_source.hpp"
#ifdef HALOTAP_HAVE_JSON
#include "jsonl/jsonl_sink.hpp"
#endif
#ifdef HALOTAP_HAVE_NPZ
#include "npy/npz.hpp"
#endif
#ifdef HALOTAP_HAVE_PLOT
#include "png/png_sink.hpp"
#endif
#ifdef HALOTAP_HAVE_PORTAUDIO
#include "portaudio/port_audio_sink.hpp"
#include "portaudio/port_audio_source.hpp"
#endif
#ifdef HALOTAP_HAVE_SNDFILE
#include "sndfile/sndfile_sink.hpp"
#include "sndfile/sndfile_source.hpp"
#endif
#ifdef HALOTAP_HAVE_SOXR
#include "resample/resampled_source.hpp"
#endif

namespace halotap::io {

using pipeline::ConfigError;
using pipeline::DataError;

namespace {

using OpenSource = std::unique_ptr<Source> (*)(Address&, const SourceRequest&);
using OpenSink = std::unique_ptr<Sink> (*)(Address&, const SinkSpec&);

// What a scheme stands for.
template <class Open>
struct Endpoint {
  std::string_view scheme;
  Open open;                         // null when it was left out of this build
  std::string_view library;          // without which it is left out
  std::string_view options;          // all that it has, for messages
  bool is_file = true;               // the path names a file
  bool takes_standard_file = false;  // the path may be "-"
  bool is_device = false;
};

#ifdef HALOTAP_HAVE_SNDFILE
constexpr OpenSource kOpenAudioSource = open_sndfile_source;
constexpr OpenSink kOpenAudioSink = open_sndfile_sink;
#else
constexpr OpenSource kOpenAudioSource = nullptr;
constexpr OpenSink kOpenAudioSink = nullptr;
#endif
#ifdef HALOTAP_HAVE_NPZ
constexpr OpenSource kOpenNpzSource = open_npz_source;
constexpr OpenSink kOpenNpzSink = open_npz_sink;
#else
constexpr OpenSource kOpenNpzSource = nullptr;
constexpr OpenSink kOpenNpzSink = nullptr;
#endif
#ifdef HALOTAP_HAVE_PORTAUDIO
constexpr OpenSource kOpenDeviceSource = open_port_audio_source;
constexpr OpenSink kOpenDeviceSink = open_port_audio_sink;
#else
constexpr OpenSource kOpenDeviceSource = nullptr;
constexpr OpenSink kOpenDeviceSink = nullptr;
#endif
#ifdef HALOTAP_HAVE_JSON
constexpr OpenSink kOpenJsonlSink = open_jsonl_sink;
#else
constexpr OpenSink kOpenJsonlSink = nullptr;
#endif
#ifdef HALOTAP_HAVE_PLOT
constexpr OpenSink kOpenPngSink = open_png_sink;
#else
constexpr OpenSink kOpenPngSink = nullptr;
#endif

constexpr std::string_view kNoAudio = "audio file support (libsndfile)";
constexpr std::string_view kNoArchives = ".npz support (libzip)";
constexpr std::string_view kNoPictures = "picture support (cairo and nlohmann_json)";
constexpr std::string_view kNoDevices = "sound device support (PortAudio)";
constexpr std::string_view kNoJson = "JSON support (nlohmann_json)";

constexpr std::array kSources = {
    Endpoint<OpenSource>{"npy", open_npy_source, "", "rate, channels, resample"},
    Endpoint<OpenSource>{"npz", kOpenNpzSource, kNoArchives, "array, rate, channels, resample"},
    Endpoint<OpenSource>{"csv", open_csv_source, "", "delimiter, header, rate, channels, resample", true, true},
    Endpoint<OpenSource>{"wav", kOpenAudioSource, kNoAudio, "channels, resample"},
    Endpoint<OpenSource>{"flac", kOpenAudioSource, kNoAudio, "channels, resample"},
    Endpoint<OpenSource>{"ogg", kOpenAudioSource, kNoAudio, "channels, resample"},
    Endpoint<OpenSource>{"synth", open_synth_source, "",
                         "rate, channels, streams, frames, seconds, seed, amplitude, hz, from_hz, to_hz, resample",
                         false},
    Endpoint<OpenSource>{"portaudio", kOpenDeviceSource, kNoDevices,
                         "rate, channels, block, latency, reconnect, resample", false, false, true},
};

constexpr std::array kSinks = {
    Endpoint<OpenSink>{"npy", open_npy_sink, "", ""},
    Endpoint<OpenSink>{"npz", kOpenNpzSink, kNoArchives, "array"},
    Endpoint<OpenSink>{"csv", open_csv_sink, "", "delimiter", true, true},
    Endpoint<OpenSink>{"jsonl", kOpenJsonlSink, kNoJson, "lines", true, true},
    Endpoint<OpenSink>{"wav", kOpenAudioSink, kNoAudio, ""},
    Endpoint<OpenSink>{"portaudio", kOpenDeviceSink, kNoDevices, "block, latency, reconnect, drift, reserve_ms", false,
                       false, true},
    Endpoint<OpenSink>{"png", kOpenPngSink, kNoPictures, ""},
};

std::string joined(const std::vector<std::string>& names) {
  constexpr std::size_t kNamesListed = 16;
  std::string list;
  for (std::size_t i = 0; i < names.size() && i < kNamesListed; ++i) list += (i > 0 ? ", " : "") + names[i];
  return names.size() > kNamesListed ? list + ", ..." : list;
}

std::string text_of(double number) {
  std::array<char, 32> room;
  return {room.data(), std::to_chars(room.data(), room.data() + room.size(), number).ptr};
}

template <class Open, std::size_t kCount>
std::vector<std::string> schemes_in(const std::array<Endpoint<Open>, kCount>& endpoints) {
  std::vector<std::string> schemes;
  for (const Endpoint<Open>& endpoint : endpoints) {
    if (endpoint.open) schemes.emplace_back(endpoint.scheme);
  }
  return schemes;
}

// The endpoint of an address, ready to be opened. `role` is "source" or "sink".
template <class Open, std::size_t kCount>
const Endpoint<Open>& find(const std::array<Endpoint<Open>, kCount>& endpoints, const Address& address,
                           const char* role) {
  const auto found = std::find_if(endpoints.begin(), endpoints.end(),
                                  [&](const Endpoint<Open>& endpoint) { return endpoint.scheme == address.scheme(); });
  if (found == endpoints.end()) {
    throw ConfigError(address.text() + ": " + in_quotes(address.scheme()) + " is no scheme of a " + role +
                      "; there are " + joined(schemes_in(endpoints)));
  }
  if (!found->open) throw ConfigError(address.text() + ": this build has no " + std::string(found->library));
  if (found->is_file && address.path().empty()) throw ConfigError(address.text() + ": expected a path behind ://");
  if (found->is_file && address.path() == "-" && !found->takes_standard_file) {
    throw ConfigError(address.text() + ": expected a file; " + address.scheme() +
                      " does not go through standard input or output");
  }
  return *found;
}

// Where the channels of a `channels=` option are in the source: a name of the source's, or else a number from 0.
std::vector<std::int64_t> indices_of(const std::vector<std::string>& selection, const SourceInfo& info,
                                     const Address& address) {
  std::vector<std::int64_t> indices;
  for (const std::string& item : selection) {
    const auto name = std::find(info.channel_names.begin(), info.channel_names.end(), item);
    std::int64_t index = name - info.channel_names.begin();
    if (name == info.channel_names.end()) {
      const char* const end = item.data() + item.size();
      const auto [stop, error] = std::from_chars(item.data(), end, index);
      if (error != std::errc{} || stop != end || index < 0 || index >= info.channels) {
        throw ConfigError(address.text() + ": option channels: expected numbers from 0 to " +
                          std::to_string(info.channels - 1) +
                          (info.channel_names.empty() ? "" : " or names of " + joined(info.channel_names)) + ", got " +
                          in_quotes(item));
      }
    }
    indices.push_back(index);
  }
  return indices;
}

// Where the model's channels are in a source that names its own.
std::vector<std::int64_t> indices_by_name(const std::vector<std::string>& wanted, const SourceInfo& info,
                                          const Address& address) {
  const std::vector<std::string>& held = info.channel_names;
  std::vector<std::int64_t> indices;
  std::vector<std::string> missing;
  std::vector<std::string> extra;
  for (const std::string& name : wanted) {
    const auto found = std::find(held.begin(), held.end(), name);
    if (found == held.end()) missing.push_back(name);
    indices.push_back(found - held.begin());
  }
  for (const std::string& name : held) {
    if (std::find(wanted.begin(), wanted.end(), name) == wanted.end()) extra.push_back(name);
  }
  if (missing.empty() && extra.empty()) return indices;
  throw DataError(address.text() + ": expected the model's channels " + joined(wanted) + "; " +
                  (missing.empty() ? "" : "missing: " + joined(missing) + "; ") +
                  (extra.empty() ? "" : "not the model's: " + joined(extra) + "; ") +
                  "?channels=... chooses and orders them by hand");
}

// `chooses`: the option `channels` chooses among those that are there; else it says how many there are to be.
std::unique_ptr<Source> with_channels(std::unique_ptr<Source> source, const SourceRequest& request,
                                      const std::optional<std::vector<std::string>>& selection, bool chooses,
                                      const Address& address) {
  const SourceInfo& info = source->info();
  if (selection) {
    std::vector<std::int64_t> indices = indices_of(*selection, info, address);
    source = selected(std::move(source), std::move(indices));
  } else if (!request.channel_names.empty() && !info.channel_names.empty()) {
    std::vector<std::int64_t> indices = indices_by_name(request.channel_names, info, address);
    if (!std::is_sorted(indices.begin(), indices.end())) source = selected(std::move(source), std::move(indices));
  }
  const std::int64_t channels = source->info().channels;
  if (request.channels > 0 && channels != request.channels) {
    throw DataError(address.text() + ": channels: expected " + std::to_string(request.channels) +
                    ", as the model takes, got " + std::to_string(channels) +
                    (chooses ? "; ?channels=... chooses them" : "; ?channels=" + std::to_string(request.channels)));
  }
  return source;
}

std::unique_ptr<Source> with_rate(std::unique_ptr<Source> source, const SourceRequest& request, bool resample,
                                  const Address& address) {
  const double rate_hz = source->info().rate_hz;
  if (resample && request.rate_hz <= 0) throw ConfigError(address.text() + ": no rate to resample to is known");
  if (request.rate_hz <= 0 || rate_hz == request.rate_hz) return source;
  if (!resample) {
    throw DataError(address.text() + ": expected " + text_of(request.rate_hz) + " Hz, as the model runs at, got " +
                    text_of(rate_hz) + " Hz; ?resample=true converts it");
  }
#ifdef HALOTAP_HAVE_SOXR
  return resampled(std::move(source), request.rate_hz);
#else
  throw ConfigError(address.text() + ": this build has no resampling (libsoxr)");
#endif
}

// The file that an address names; nothing when it names none. What is no address is taken as a path, so that a model
// file may stand among the inputs.
std::optional<std::filesystem::path> file_of(const std::string& text) {
  if (text.find("://") == std::string::npos) {
    try {
      return Address(text).path();
    } catch (const ConfigError&) {
      return text;
    }
  }
  const Address address(text);
  const auto is_file = [&](const auto& endpoint) { return endpoint.scheme == address.scheme() && endpoint.is_file; };
  const bool names_file =
      std::any_of(kSources.begin(), kSources.end(), is_file) || std::any_of(kSinks.begin(), kSinks.end(), is_file);
  if (!names_file) return std::nullopt;
  return address.path();
}

// `path` with links and dots resolved as far as it is there. In a folder that was removed a relative one stays as it
// is.
std::filesystem::path resolved(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  const std::filesystem::path canonical = error ? path : std::filesystem::weakly_canonical(absolute, error);
  return error ? path.lexically_normal() : canonical;
}

bool is_same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code error;
  if (std::filesystem::exists(a, error) && std::filesystem::exists(b, error)) {
    // By device and inode: links are seen through. /dev/null may come twice.
    return std::filesystem::is_regular_file(a, error) && std::filesystem::equivalent(a, b, error);
  }
  return resolved(a) == resolved(b);
}

}  // namespace

std::unique_ptr<Source> open_source(const std::string& text, const SourceRequest& request) {
  Address address(text);
  const Endpoint<OpenSource>& endpoint = find(kSources, address, "source");
  std::unique_ptr<Source> source = endpoint.open(address, request);
  // After the endpoint took its own: to a synthetic source `channels` is a count.
  const std::optional<std::vector<std::string>> selection = address.take_list("channels");
  const bool resample = address.take_bool("resample").value_or(false);
  address.require_all_options_taken(endpoint.options);
  source = with_channels(std::move(source), request, selection, endpoint.is_file, address);
  return with_rate(std::move(source), request, resample, address);
}

std::unique_ptr<Sink> open_sink(const std::string& text, const SinkSpec& spec) {
  Address address(text);
  const Endpoint<OpenSink>& endpoint = find(kSinks, address, "sink");
  std::unique_ptr<Sink> sink = endpoint.open(address, spec);
  address.require_all_options_taken(endpoint.options);
  return sink;
}

void refuse_overwriting(const std::vector<std::string>& inputs, std::vector<std::string> outputs,
                        const std::vector<std::string>& recordings) {
  for (const std::string& recording : recordings) outputs.push_back(file_address("wav", recording));
  for (const std::string& recording : recordings) {
    const std::string first = resolved(recording).string();
    for (const std::vector<std::string>* addresses : {&inputs, &std::as_const(outputs)}) {
      for (const std::string& address : *addresses) {
        const std::optional<std::filesystem::path> file = file_of(address);
        if (file && is_numbered(first, resolved(*file).string())) {
          throw ConfigError(address + ": a gap would let the recording " + recording + " go on in this file");
        }
      }
    }
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::optional<std::filesystem::path> output = file_of(outputs[i]);
    if (!output) continue;
    for (const std::string& input : inputs) {
      const std::optional<std::filesystem::path> file = file_of(input);
      if (file && *file != "-" && *output != "-" && is_same_file(*file, *output)) {
        throw ConfigError(outputs[i] + ": the output is the same file as the input " + input);
      }
    }
    for (std::size_t j = 0; j < i; ++j) {
      const std::optional<std::filesystem::path> other = file_of(outputs[j]);
      if (other &&
          ((*other == "-" && *output == "-") || (*other != "-" && *output != "-" && is_same_file(*other, *output)))) {
        throw ConfigError(outputs[i] + ": the output is the same file as the output " + outputs[j]);
      }
    }
  }
}

std::string file_address(const std::string& scheme, const std::string& path) {
  std::string address = scheme + "://";
  for (const char c : path) {
    if (c == '%' || c == '?') {
      address += c == '%' ? "%25" : "%3F";
    } else {
      address += c;
    }
  }
  return address;
}

bool is_device_source(const std::string& address) { return find(kSources, Address(address), "source").is_device; }
bool is_device_sink(const std::string& address) { return find(kSinks, Address(address), "sink").is_device; }

bool is_standard_output(const std::string& address) { return Address(address).path() == "-"; }

std::vector<std::string> source_schemes() { return schemes_in(kSources); }
std::vector<std::string> sink_schemes() { return schemes_in(kSinks); }

}  // namespace halotap::io
