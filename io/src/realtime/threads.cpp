#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "halotap/io/realtime.hpp"

namespace halotap::io {
namespace {

constexpr std::string_view kPrefix = "halotap-";

}  // namespace

std::vector<ThreadInfo> threads() {
  std::vector<ThreadInfo> found;
  std::error_code error;  // a thread may end while it is looked at
  for (std::filesystem::directory_iterator entry("/proc/self/task", error), end; !error && entry != end;
       entry.increment(error)) {
    ThreadInfo info;
    std::getline(std::ifstream(entry->path() / "comm") >> std::ws, info.name);
    if (info.name.substr(0, kPrefix.size()) != kPrefix) continue;
    const std::string id = entry->path().filename().string();
    std::from_chars(id.data(), id.data() + id.size(), info.id);
    found.push_back(std::move(info));
  }
  std::sort(found.begin(), found.end(), [](const ThreadInfo& a, const ThreadInfo& b) { return a.id < b.id; });
  return found;
}

}  // namespace halotap::io
