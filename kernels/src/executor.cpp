#include "halotap/kernels/executor.hpp"

#include <array>
#include <utility>

namespace halotap::kernels {
namespace {

constexpr std::array kPrecisionNames{
    std::pair{Precision::kFp32, std::string_view{"fp32"}}, std::pair{Precision::kTf32, std::string_view{"tf32"}},
    std::pair{Precision::kBf16, std::string_view{"bf16"}}, std::pair{Precision::kFp16, std::string_view{"fp16"}}};

}  // namespace

std::string_view to_string(Precision precision) {
  for (const auto& [value, name] : kPrecisionNames) {
    if (value == precision) return name;
  }
  return "?";
}

std::optional<Precision> parse_precision(std::string_view word) {
  for (const auto& [value, name] : kPrecisionNames) {
    if (name == word) return value;
  }
  return std::nullopt;
}

}  // namespace halotap::kernels
