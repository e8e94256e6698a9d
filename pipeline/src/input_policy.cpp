#include "halotap/pipeline/input_policy.hpp"

namespace halotap::pipeline {

std::string_view to_string(OnGap on_gap) {
  switch (on_gap) {
    case OnGap::kReset:
      return "reset";
    case OnGap::kMark:
      return "mark";
    case OnGap::kFill:
      return "fill";
  }
  return "?";
}

std::string_view to_string(OnInvalid on_invalid) {
  switch (on_invalid) {
    case OnInvalid::kPass:
      return "pass";
    case OnInvalid::kHold:
      return "hold";
    case OnInvalid::kZero:
      return "zero";
  }
  return "?";
}

}  // namespace halotap::pipeline
