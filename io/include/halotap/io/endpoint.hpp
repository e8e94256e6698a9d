// Addresses of sources and sinks: the one place where a URI or path becomes an open endpoint.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "halotap/io/sink.hpp"
#include "halotap/io/source.hpp"

namespace halotap::io {

// What the model behind a source takes.
struct SourceRequest {
  std::int64_t channels = 0;               // 0: whatever the source has
  std::vector<std::string> channel_names;  // the model's, empty for none
  double rate_hz = 0;                      // 0: whatever the source has
  // Of a live source: how much may wait between the device and whoever reads, in milliseconds, > 0; and who hears, in
  // one line, of a device that is lost or back, from a thread of the source's.
  double ring_capacity_ms = 500;
  std::function<void(const std::string&)> on_note = {};
  bool open_device = true;  // false: left alone; the source only says what its address states, and no frame comes
};

// Opens `address`: a path, told by its extension, or `scheme://path?option=value&...` (docs/endpoints.md lists schemes
// and options). A source without a rate of its own takes the request's. Named channels are put in the model's order.
//
// Throws ConfigError for an unknown scheme, extension or option or an endpoint left out of this build; DataError when
// the file cannot be read or is malformed, and when its rate or channels differ from the request's and the address
// does not say `resample=true` or `channels=...`; the message has both values. [control]
std::unique_ptr<Source> open_source(const std::string& address, const SourceRequest& request);

// Opens `address` for writing. Throws ConfigError as above and DataError when it cannot be written. [control]
std::unique_ptr<Sink> open_sink(const std::string& address, const SinkSpec& spec);

// Throws ConfigError when an output address names the same file as an input, or as another output. Inputs that are no
// files are passed over. `recordings` are a Recorder's paths: outputs too, and so is every file that each may begin
// behind a gap. [control]
void refuse_overwriting(const std::vector<std::string>& inputs, std::vector<std::string> outputs,
                        const std::vector<std::string>& recordings = {});

// The address of the file `path` under `scheme`, whatever characters the path holds. [any thread]
std::string file_address(const std::string& scheme, const std::string& path);

// Whether an address names a device. Throws ConfigError for one that no source, or no sink, of this build has; its
// options are not looked at. [any thread]
bool is_device_source(const std::string& address);
bool is_device_sink(const std::string& address);

// Whether an output's address stands for standard output ("-", "jsonl://-"). [any thread]
bool is_standard_output(const std::string& address);

// Schemes this build has, for messages and --help: "npy", "wav", ... [any thread]
std::vector<std::string> source_schemes();
std::vector<std::string> sink_schemes();

}  // namespace halotap::io
