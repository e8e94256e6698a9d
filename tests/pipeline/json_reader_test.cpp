#include "json_reader.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace halotap::pipeline {
namespace {

struct Fault {
  std::size_t position;
  std::string token;
};

// Builds what it reads with the other library's types; numbers in double.
class Builder final : public JsonHandler {
 public:
  Builder() : root(nullptr) {}

  void null() override { put(nullptr); }
  void boolean(bool value) override { put(value); }
  void number(std::string_view text) override {
    const double value = std::strtod(std::string(text).c_str(), nullptr);
    overflow = overflow || std::isinf(value);
    put(value);
  }
  void string(const std::string& text) override { put(text); }
  void start_object() override { open(nlohmann::json::object()); }
  void key(const std::string& text) override { key_ = text; }
  void end_object() override { open_.pop_back(); }
  void start_array() override { open(nlohmann::json::array()); }
  void end_array() override { open_.pop_back(); }
  void syntax_error(std::size_t position, std::string_view token) override {
    throw Fault{position, std::string(token)};
  }

  nlohmann::json root;
  bool overflow = false;  // a number that the other library refuses, though the grammar has it

 private:
  nlohmann::json* put(nlohmann::json value) {
    if (open_.empty()) {
      root = std::move(value);
      return &root;
    }
    nlohmann::json& in = *open_.back();
    if (in.is_object()) return &(in[key_] = std::move(value));
    in.push_back(std::move(value));
    return &in.back();
  }
  void open(nlohmann::json value) { open_.push_back(put(std::move(value))); }

  std::vector<nlohmann::json*> open_;
  std::string key_;
};

std::optional<nlohmann::json> read(const std::string& text) {
  Builder builder;
  try {
    read_json(text, builder);
  } catch (const Fault&) {
    return std::nullopt;
  }
  if (builder.overflow) return std::nullopt;
  return builder.root;
}

Fault fault_of(const std::string& text) {
  Builder builder;
  try {
    read_json(text, builder);
  } catch (const Fault& fault) {
    return fault;
  }
  ADD_FAILURE() << text << " was read";
  return {};
}

// The other library's values, numbers in double as ours.
nlohmann::json in_double(nlohmann::json value) {
  if (value.is_number()) return value.get<double>();
  if (value.is_structured()) {
    for (auto& part : value) part = in_double(part);
  }
  return value;
}

void expect_as_the_library(const std::string& text) {
  const std::optional<nlohmann::json> ours = read(text);
  const auto theirs = nlohmann::json::parse(text, nullptr, false);
  ASSERT_EQ(ours.has_value(), !theirs.is_discarded()) << text;
  if (ours) {
    ASSERT_EQ(*ours, in_double(theirs)) << text;
  }
}

const std::vector<std::string> kTexts = {
    "{}",
    "[]",
    " [ 1 , 2.5e-3,-0, 10 ] ",
    "{\"a\":{\"b\":[true,false,null,\"x\"]},\"c\":[]}",
    "\"\\u00e9\\ud83d\\ude00\"",
    "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
    "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"",
    "[[[[]]],{}]",
    "-12.5E+2",
    "null",
    "{\"x\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},\"__metadata__\":{\"k\":\"v\"}}"};

TEST(JsonReader, ReadsWhatALibraryReads) {
  for (const std::string& text : kTexts) {
    ASSERT_TRUE(read(text)) << text;
    expect_as_the_library(text);
  }
}

// Bytes changed, dropped, doubled: nearly JSON, which is where readers differ.
TEST(JsonReader, RefusesWhatALibraryRefuses) {
  std::mt19937_64 random(1);
  const auto draw = [&random](std::size_t below) { return static_cast<std::size_t>(random() % below); };
  const std::string bytes = "{}[],:\"\\/ubfnrtaelsE01289.+-\n\t \x01\x7f\x80\xa0\xc0\xc3\xe0\xed\xf0\xf4\xff";
  for (int i = 0; i < 100'000; ++i) {
    std::string text = kTexts[draw(kTexts.size())];
    for (std::size_t changes = 1 + draw(3); changes > 0 && !text.empty(); --changes) {
      const std::size_t at = draw(text.size());
      const std::size_t kind = draw(4);
      if (kind == 0) text.erase(at, 1);
      if (kind == 1) text.insert(at, 1, bytes[draw(bytes.size())]);
      if (kind == 2) text[at] = bytes[draw(bytes.size())];
      if (kind == 3) text.insert(at, text.substr(at, 1 + draw(4)));
    }
    // The library takes one of these for the end of the text, or skips it.
    if (text.starts_with('\xef')) continue;
    ASSERT_NO_FATAL_FAILURE(expect_as_the_library(text));
  }
}

TEST(JsonReader, NamesThePlaceOfAFault) {
  EXPECT_EQ(fault_of("{\"a\" 1}").position, 5u);
  EXPECT_EQ(fault_of("{\"a\" 1}").token, "\"a\" 1");
  EXPECT_EQ(fault_of("[1,]").position, 3u);
  EXPECT_EQ(fault_of("[1 2]").position, 3u);
  EXPECT_EQ(fault_of("{\"a\":tru}").token, "tru}");
  EXPECT_EQ(fault_of("").position, 0u);
  EXPECT_EQ(fault_of("[\"abc").position, 5u);
  EXPECT_EQ(fault_of("[\"abc").token, "\"abc");
}

TEST(JsonReader, TakesDeepNestingWithoutRecursion) {
  struct Counter final : JsonHandler {
    void null() override {}
    void boolean(bool) override {}
    void number(std::string_view) override {}
    void string(const std::string&) override {}
    void start_object() override {}
    void key(const std::string&) override {}
    void end_object() override {}
    void start_array() override { ++arrays; }
    void end_array() override {}
    void syntax_error(std::size_t position, std::string_view) override { throw position; }
    int arrays = 0;
  } counter;
  read_json(std::string(1'000'000, '[') + std::string(1'000'000, ']'), counter);
  EXPECT_EQ(counter.arrays, 1'000'000);
}

}  // namespace
}  // namespace halotap::pipeline
