// A strict reader of our YAML files: what a key may hold is said where it is read, and everything else is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fault.hpp"

namespace halotap::pipeline {

class YamlMap;
class YamlValue;

// One scalar, list or map of a file, with the place it stands at.
struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  struct Key {
    std::string text;
    std::string place;
  };

  Kind kind = Kind::kNull;
  bool plain = true;            // of a scalar: written without quotes
  std::string text;             // of a scalar
  std::string place;            // "m.yaml:3:7", or the override that put it here
  std::vector<Key> keys;        // of a map, one an item
  std::vector<YamlNode> items;  // of a list or map
};

// A YAML file, read whole. Taken is the plain part of YAML that a person writes a configuration in: one document of
// maps with unique text keys, lists and scalars on one line. Refused are anchors, aliases, tags, further documents,
// control characters, invalid UTF-8, and files above 1 MiB, 32 levels or 50,000 nodes, each while it is read. [control]
class YamlFile {
 public:
  // Throws the fault's error naming file, line and column, expected and got.
  YamlFile(const std::filesystem::path& path, Fault fault);
  YamlFile(const YamlFile&) = delete;
  YamlFile& operator=(const YamlFile&) = delete;

  // Puts one value in place of another, or where none was: `assignment` is `key=value` with a dotted key (list entries
  // by index, "sinks.0.uri") and a YAML scalar. Whether the key has a meaning shows when the file is taken apart.
  void override_value(const std::string& assignment);

  // The file's map, once its `format` is found to be `format`. Refers to this file.
  YamlMap root(std::string_view format) const;

 private:
  Fault fault_;
  std::string name_;
  YamlNode root_;
};

// A value on its way into a field. Every accessor throws the fault's error naming file, place, dotted key, expected and
// got when the value is something else. A quoted number or boolean is text. Refers to its file. [control]
class YamlValue {
 public:
  std::string text() const;                                           // not empty
  std::int64_t integer(std::int64_t least, std::int64_t most) const;  // decimal digits
  double number() const;                                              // finite
  double positive_number(double most) const;                          // finite
  bool boolean() const;                                               // true or false
  std::vector<YamlValue> list(std::size_t least, std::size_t most) const;
  YamlMap map() const;

  // One of `choices`, spelled as to_string spells it.
  template <typename Choice>
  Choice word(std::initializer_list<Choice> choices) const {
    std::vector<std::string_view> words;
    for (const Choice choice : choices) words.push_back(to_string(choice));
    return choices.begin()[index_of_word(words)];
  }

  const std::string& place() const { return node_->place; }  // "m.yaml:3:7"
  const std::string& key() const { return key_; }            // "layers.0.name"

  // Throws "place: key 'k': expected ..., got ...". The short form says what is there.
  [[noreturn]] void refuse(const std::string& expected) const;
  [[noreturn]] void refuse(const std::string& expected, const std::string& got) const;

 private:
  friend class YamlFile;
  friend class YamlMap;
  YamlValue(const YamlNode* node, std::string key, Fault fault) : node_(node), key_(std::move(key)), fault_(fault) {}
  std::optional<double> plain_number() const;
  std::size_t index_of_word(const std::vector<std::string_view>& words) const;
  std::string key_below(std::string_view last) const;

  const YamlNode* node_;
  std::string key_;  // dotted; empty for the file's map
  Fault fault_;
};

// A map that is asked for the keys it may have; then refuse_unknown_keys refuses the others, so that a misspelt key
// never passes in silence. [control]
class YamlMap {
 public:
  YamlValue required(std::string_view key);
  std::optional<YamlValue> optional(std::string_view key);
  void refuse_unknown_keys() const;

 private:
  friend class YamlValue;
  explicit YamlMap(YamlValue value) : value_(std::move(value)) {}

  YamlValue value_;
  std::vector<std::string> asked_;
};

}  // namespace halotap::pipeline
