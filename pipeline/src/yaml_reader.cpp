#include "yaml_reader.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iomanip>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "regular_file.hpp"

namespace halotap::pipeline {
namespace {

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 20;
constexpr std::size_t kMaxLevels = 32;
constexpr std::size_t kMaxNodes = 50000;

bool is_control(char character) { return (character >= 0 && character < 0x20) || character == 0x7f; }

std::string hex_byte(char byte) {
  std::ostringstream text;
  text << "0x" << std::hex << static_cast<unsigned>(static_cast<unsigned char>(byte));
  return text.str();
}

std::string_view name_of(YamlNode::Kind kind) {
  switch (kind) {
    case YamlNode::Kind::kNull:
      return "nothing";
    case YamlNode::Kind::kScalar:
      return "a scalar";
    case YamlNode::Kind::kList:
      return "a list";
    case YamlNode::Kind::kMap:
      return "a map";
  }
  return "";
}

std::string describe(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::kScalar) return std::string(name_of(node.kind));
  return (node.plain ? "" : "the text ") + in_quotes(node.text);
}

// Refuses what yaml-cpp would take for something else: it ends the text at byte 4, reads NUL as a space, replaces
// invalid UTF-8, reports a tab in the indentation as something further on, and collects tokens up to the end of the
// file while brackets are open, before any event tells of them: a megabyte of brackets takes 240 MB.
void check_characters(std::string_view text, const std::string& name, Fault fault) {
  std::size_t line = 1;
  std::size_t column = 1;
  bool indenting = true;
  std::size_t brackets = 0;
  for (std::size_t i = 0; i < text.size();) {
    const auto refuse = [&](const std::string& expected, const std::string& got) {
      fail(fault, name + ":" + std::to_string(line) + ":" + std::to_string(column) + ": expected " + expected +
                      ", got " + got);
    };
    const char character = text[i];
    const std::size_t length = utf8_length(text.substr(i));
    if (length == 0) refuse("UTF-8 text", "byte " + hex_byte(character));
    const bool is_space = character == '\t' || character == '\r' || character == '\n';
    if (is_control(character) && !is_space) refuse("text", "byte " + hex_byte(character));
    if ((character == '[' || character == '{') && ++brackets > kMaxNodes) {
      refuse("at most " + std::to_string(kMaxNodes) + " brackets", "more");
    }
    if (indenting && character == '\t') refuse("spaces at the beginning of a line", "a tab");
    if (character == '\n') {
      ++line;
      column = 1;
      indenting = true;
    } else {
      ++column;
      indenting = indenting && character == ' ';
    }
    i += length;
  }
}

// Builds the tree from the parser's events, refusing at the first event that is out of bounds.
class TreeBuilder : public YAML::EventHandler {
 public:
  // `name` stands in front of line and column; with `fixed_place` it is the whole place.
  TreeBuilder(std::string name, bool fixed_place, Fault fault)
      : name_(std::move(name)), fixed_place_(fixed_place), fault_(fault) {
    root_.place = place_of(YAML::Mark());
  }

  YamlNode take_root() { return std::move(root_); }

  std::string place_of(const YAML::Mark& mark) const {
    if (fixed_place_ || mark.is_null()) return name_;
    return name_ + ":" + std::to_string(mark.line + 1) + ":" + std::to_string(mark.column + 1);
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) refuse(mark, "one document", "a second one");
  }
  void OnDocumentEnd() override {}
  void OnAnchor(const YAML::Mark& mark, const std::string& anchor) override {
    refuse(mark, "no anchors", in_quotes("&" + anchor));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { refuse(mark, "no aliases", "one"); }

  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    YamlNode node;
    // The parser gives an absent value the place of whatever follows; its key's place is the one to look at.
    const bool is_value = !open_.empty() && open_.back().has_key;
    node.place = is_value ? open_.back().node.keys.back().place : place_of(mark);
    add(mark, std::move(node));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, const std::string& value) override {
    check_tag(mark, tag);
    if (std::any_of(value.begin(), value.end(), is_control)) {
      refuse(mark, "text on one line without control characters", in_quotes(value));
    }
    YamlNode node;
    node.kind = YamlNode::Kind::kScalar;
    node.plain = tag == "?";
    node.text = value;
    node.place = place_of(mark);
    add(mark, std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, YamlNode::Kind::kList);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, YAML::EmitterStyle::value) override {
    open(mark, tag, YamlNode::Kind::kMap);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    YamlNode node;
    YAML::Mark mark;
    std::set<std::string> known;  // of a map: its keys so far
    bool has_key = false;         // of a map: the next node is the value of the last key
  };

  [[noreturn]] void refuse(const YAML::Mark& mark, const std::string& expected, const std::string& got) const {
    fail(fault_, place_of(mark) + ": expected " + expected + ", got " + got);
  }

  // "?" and "!" are the parser's own: plain and quoted.
  void check_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?" && tag != "!") refuse(mark, "no tags", in_quotes(tag));
  }

  void open(const YAML::Mark& mark, const std::string& tag, YamlNode::Kind kind) {
    check_tag(mark, tag);
    if (open_.size() == kMaxLevels) refuse(mark, "at most " + std::to_string(kMaxLevels) + " levels", "more");
    Open opened;
    opened.node.kind = kind;
    opened.node.place = place_of(mark);
    opened.mark = mark;
    open_.push_back(std::move(opened));
  }

  void close() {
    Open closed = std::move(open_.back());
    open_.pop_back();
    add(closed.mark, std::move(closed.node));
  }

  void add(const YAML::Mark& mark, YamlNode node) {
    if (++nodes_ > kMaxNodes) refuse(mark, "at most " + std::to_string(kMaxNodes) + " values", "more");
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = open_.back();
    if (parent.node.kind == YamlNode::Kind::kMap && !parent.has_key) {
      if (node.kind != YamlNode::Kind::kScalar) refuse(mark, "a key that is text", std::string(name_of(node.kind)));
      if (!parent.known.insert(node.text).second) refuse(mark, "key " + in_quotes(node.text) + " once", "it again");
      parent.node.keys.push_back({std::move(node.text), std::move(node.place)});
      parent.has_key = true;
      return;
    }
    parent.node.items.push_back(std::move(node));
    parent.has_key = false;
  }

  std::string name_;
  bool fixed_place_;
  Fault fault_;
  YamlNode root_;
  std::vector<Open> open_;
  std::size_t nodes_ = 0;
  std::size_t documents_ = 0;
};

YamlNode parse(const std::string& text, const std::string& name, bool fixed_place, Fault fault) {
  check_characters(text, name, fault);
  TreeBuilder builder(name, fixed_place, fault);
  // yaml-cpp misses that a quote is never closed when the text ends in white space.
  std::istringstream stream(text.substr(0, text.find_last_not_of(" \t\r\n") + 1));
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    fail(fault, builder.place_of(error.mark) + ": expected YAML, got an error: " + in_quotes(error.msg));
  }
  return builder.take_root();
}

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  // from_chars takes no plus sign; it must not let "+-1" through either.
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

YamlFile::YamlFile(const std::filesystem::path& path, Fault fault) : fault_(fault) {
  const RegularFile file(path, fault);
  name_ = file.name();
  if (file.size_bytes() > kMaxFileBytes) {
    fail(fault, name_ + ": expected at most " + std::to_string(kMaxFileBytes) + " bytes, got " +
                    std::to_string(file.size_bytes()));
  }
  std::string text(file.size_bytes(), '\0');
  file.read(0, text);
  root_ = parse(text, name_, false, fault);
}

void YamlFile::override_value(const std::string& assignment) {
  const std::string place = name_ + ": override " + in_quotes(assignment);
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos) fail(fault_, place + ": expected key=value, got no '='");
  YamlNode value = parse(assignment.substr(equals + 1), place, true, fault_);
  if (value.kind == YamlNode::Kind::kList || value.kind == YamlNode::Kind::kMap) {
    fail(fault_, place + ": expected a single value, got " + describe(value));
  }

  const std::string key = assignment.substr(0, equals);
  YamlNode* node = &root_;
  for (std::size_t begin = 0; begin <= key.size();) {
    const std::size_t end = std::min(key.find('.', begin), key.size());
    const std::string step = key.substr(begin, end - begin);
    const std::string so_far = key.substr(0, end);
    if (step.empty()) fail(fault_, place + ": expected a dotted key, got " + in_quotes(key));
    if (node->kind == YamlNode::Kind::kNull) {
      node->kind = YamlNode::Kind::kMap;
      node->place = place;
    }
    if (node->kind == YamlNode::Kind::kScalar) {
      fail(fault_,
           place + ": key " + in_quotes(key.substr(0, begin - 1)) + ": expected a map or list, got " + describe(*node));
    }
    if (node->kind == YamlNode::Kind::kList) {
      const auto index = parse_number<std::size_t>(step);
      if (!index || *index >= node->items.size()) {
        fail(fault_, place + ": key " + in_quotes(so_far) + ": expected the index of one of " +
                         std::to_string(node->items.size()) + " entries, got " + in_quotes(step));
      }
      node = &node->items[*index];
    } else {
      const auto found = std::find_if(node->keys.begin(), node->keys.end(),
                                      [&](const YamlNode::Key& known) { return known.text == step; });
      const std::size_t index = static_cast<std::size_t>(found - node->keys.begin());
      if (found == node->keys.end()) {
        node->keys.push_back({step, place});
        node->items.emplace_back();
      }
      node = &node->items[index];
    }
    begin = end + 1;
  }
  *node = std::move(value);
}

YamlMap YamlFile::root(std::string_view format) const {
  YamlMap map = YamlValue(&root_, "", fault_).map();
  const YamlValue found = map.required("format");
  if (found.text() != format) found.refuse(in_quotes(format));
  return map;
}

std::string YamlValue::text() const {
  if (node_->kind != YamlNode::Kind::kScalar || node_->text.empty()) refuse("text");
  return node_->text;
}

std::int64_t YamlValue::integer(std::int64_t least, std::int64_t most) const {
  const bool plain = node_->kind == YamlNode::Kind::kScalar && node_->plain;
  const auto number = plain ? parse_number<std::int64_t>(node_->text) : std::nullopt;
  if (!number || *number < least || *number > most) {
    refuse("an integer from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return *number;
}

double YamlValue::number() const {
  const std::optional<double> number = plain_number();
  if (!number || !std::isfinite(*number)) refuse("a finite number");
  return *number;
}

double YamlValue::positive_number(double most) const {
  const std::optional<double> number = plain_number();
  // Written so that a NaN is refused too.
  if (!number || !(*number > 0 && *number <= most)) {
    std::ostringstream expected;
    expected << "a number above 0 and at most " << most;
    refuse(expected.str());
  }
  return *number;
}

bool YamlValue::boolean() const {
  const bool plain = node_->kind == YamlNode::Kind::kScalar && node_->plain;
  if (!plain || (node_->text != "true" && node_->text != "false")) refuse("true or false");
  return node_->text == "true";
}

std::vector<YamlValue> YamlValue::list(std::size_t least, std::size_t most) const {
  if (node_->kind != YamlNode::Kind::kList) refuse("a list");
  const std::size_t size = node_->items.size();
  if (size < least || size > most) {
    refuse("a list of " + std::to_string(least) + " to " + std::to_string(most), std::to_string(size));
  }
  std::vector<YamlValue> values;
  values.reserve(size);
  for (std::size_t i = 0; i < size; ++i) {
    values.push_back(YamlValue(&node_->items[i], key_below(std::to_string(i)), fault_));
  }
  return values;
}

YamlMap YamlValue::map() const {
  if (node_->kind != YamlNode::Kind::kMap) refuse("a map");
  return YamlMap(*this);
}

std::optional<double> YamlValue::plain_number() const {
  const bool plain = node_->kind == YamlNode::Kind::kScalar && node_->plain;
  return plain ? parse_number<double>(node_->text) : std::nullopt;
}

std::size_t YamlValue::index_of_word(const std::vector<std::string_view>& words) const {
  if (node_->kind == YamlNode::Kind::kScalar) {
    const auto found = std::find(words.begin(), words.end(), node_->text);
    if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
  }
  std::string expected = words.size() > 2 ? "one of " : "";
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) expected += i + 1 < words.size() ? ", " : " or ";
    expected += words[i];
  }
  refuse(expected);
}

std::string YamlValue::key_below(std::string_view last) const {
  return key_.empty() ? std::string(last) : key_ + "." + std::string(last);
}

void YamlValue::refuse(const std::string& expected) const { refuse(expected, describe(*node_)); }

void YamlValue::refuse(const std::string& expected, const std::string& got) const {
  const std::string key = key_.empty() ? "" : "key " + in_quotes(key_) + ": ";
  fail(fault_, node_->place + ": " + key + "expected " + expected + ", got " + got);
}

YamlValue YamlMap::required(std::string_view key) {
  const std::optional<YamlValue> value = optional(key);
  if (!value) {
    fail(value_.fault_,
         value_.place() + ": key " + in_quotes(value_.key_below(key)) + ": expected a value, got no such key");
  }
  return *value;
}

std::optional<YamlValue> YamlMap::optional(std::string_view key) {
  asked_.emplace_back(key);
  const std::vector<YamlNode::Key>& keys = value_.node_->keys;
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const YamlNode::Key& known) { return known.text == key; });
  if (found == keys.end()) return std::nullopt;
  const YamlNode& item = value_.node_->items[static_cast<std::size_t>(found - keys.begin())];
  return YamlValue(&item, value_.key_below(key), value_.fault_);
}

void YamlMap::refuse_unknown_keys() const {
  for (const YamlNode::Key& key : value_.node_->keys) {
    if (std::find(asked_.begin(), asked_.end(), key.text) != asked_.end()) continue;
    std::string known;
    for (const std::string& asked : asked_) known += (known.empty() ? "" : ", ") + asked;
    fail(value_.fault_, key.place + ": key " + in_quotes(value_.key_below(key.text)) + ": expected one of " + known +
                            ", got an unknown key");
  }
}

}  // namespace halotap::pipeline
