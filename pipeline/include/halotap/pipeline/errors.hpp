// What setup throws and what the run time returns.
#pragma once

#include <stdexcept>
#include <string_view>

namespace halotap::pipeline {

// Base of every exception that halotap throws on purpose. The message is one line and names the file, the place in
// it, what was expected and what was found.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A pipeline file, an option or an endpoint's address is wrong.
class ConfigError : public Error {
 public:
  using Error::Error;
};

// A model file or its weights are wrong.
class ModelError : public Error {
 public:
  using Error::Error;
};

// A recording cannot be read or a result cannot be written.
class DataError : public Error {
 public:
  using Error::Error;
};

// A device or backend is missing or failed.
class DeviceError : public Error {
 public:
  using Error::Error;
};

// Chunks took longer than their budget, where the configuration says that this ends the run.
class BudgetError : public Error {
 public:
  using Error::Error;
};

// What run-time calls return; they never throw.
enum class [[nodiscard]] Status{
    kOk,
    kNotPrepared,      // prepare has not run
    kNoFreeStream,     // max_streams are open
    kUnknownStream,    // never opened, or closed since
    kRepeatedStream,   // the stream already has an entry in this call
    kInvalidView,      // a view has a negative size, or frames but no memory
    kChannelMismatch,  // a view's channels differ from the model's
    kChunkTooLong,     // more input frames than max_chunk_frames
    kOutputTooShort,   // less room in the output view than frames to emit
    kInvalidFill,      // the fill's frame is missing or not finite, or its kind unknown
    kStreamFull,       // as many entries of the stream as there is room for are not collected yet
    kNoChunkBegun,     // a chunk was submitted that was not begun
    kNotYet,           // the deadline came before the next result
    kStopped,          // the engine was stopped
    kDeviceFailed,     // the device stopped computing; only a new prepare can help (Engine::failure says why)
};

// A sentence for a person: "the stream was never opened, or was closed". [any thread]
std::string_view to_string(Status status) noexcept;

}  // namespace halotap::pipeline
