// What the library was built from and with.
#pragma once

namespace halotap::pipeline {

extern const char* const kVersion;   // "0.1.0"
extern const char* const kCommit;    // "1a2b3c4d5e6f", with "-dirty" when files differed from it, or "unknown"
extern const char* const kCompiler;  // "GNU 12.2.0, Release"

}  // namespace halotap::pipeline
