#include "halotap/pipeline/errors.hpp"

namespace halotap::pipeline {

std::string_view to_string(Status status) noexcept {
  switch (status) {
    case Status::kOk:
      return "done";
    case Status::kNotPrepared:
      return "the engine was not prepared";
    case Status::kNoFreeStream:
      return "every stream the engine was prepared for is open";
    case Status::kUnknownStream:
      return "the stream was never opened, or was closed";
    case Status::kRepeatedStream:
      return "the stream has an entry in this call already";
    case Status::kInvalidView:
      return "a view has a negative size, or frames but no memory";
    case Status::kChannelMismatch:
      return "a view's channels differ from the model's";
    case Status::kChunkTooLong:
      return "the chunk is longer than the engine was prepared for";
    case Status::kOutputTooShort:
      return "the output has no room for the frames to emit";
    case Status::kInvalidFill:
      return "the fill needs a frame of finite samples";
    case Status::kStreamFull:
      return "the stream is full: results wait to be collected";
    case Status::kNoChunkBegun:
      return "no chunk was begun";
    case Status::kNotYet:
      return "there is no result yet";
    case Status::kStopped:
      return "the engine was stopped";
    case Status::kDeviceFailed:
      return "the device stopped computing";
  }
  return "unknown status";
}

}  // namespace halotap::pipeline
