// How a stage says that its specification is wrong.
#pragma once

#include <string>
#include <utility>

#include "halotap/pipeline/errors.hpp"

namespace halotap::pipeline {

// Keeps the parts of its message, "on: expected a finite float32 number, got nan", so that a reader of files can name
// the place of the key. Without a key it is about the specification as a whole.
class StageFault : public ConfigError {
 public:
  StageFault(std::string key, std::string expected, std::string got)
      : ConfigError((key.empty() ? "" : key + ": ") + "expected " + expected + ", got " + got),
        key_(std::move(key)),
        expected_(std::move(expected)),
        got_(std::move(got)) {}

  const std::string& key() const { return key_; }
  const std::string& expected() const { return expected_; }
  const std::string& got() const { return got_; }

 private:
  std::string key_;
  std::string expected_;
  std::string got_;
};

}  // namespace halotap::pipeline
