// Checks of what stage specifications hold.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "halotap/pipeline/stage.hpp"

namespace halotap::pipeline {

// As short as it can be and still read back to the same number.
std::string text_of(double number);

// Throw StageFault unless the value is a finite float32, or from 0 milliseconds to an hour.
void require_finite(const char* key, double value);
void require_time(const char* key, double milliseconds);

// Frames in a time at `rate_hz`: rounded up, at least 1.
std::int64_t frames_lasting(double milliseconds, double rate_hz);

// The number of a channel of `input`: its name, or else a number from 0. Throws StageFault about `key`.
std::int64_t channel_number(const char* key, const std::string& channel, const StageFormat& input);

// Where in a frame the samples of a channel are, of every stream in turn; of every channel when it is empty.
std::vector<std::size_t> samples_of(const char* key, const std::string& channel, const StageFormat& input);

}  // namespace halotap::pipeline
