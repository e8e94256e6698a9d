#include "yaml_reader.hpp"

#include <gtest/gtest.h>

#include "halotap/pipeline/errors.hpp"
#include "pipeline/refusal.hpp"

namespace halotap::pipeline {
namespace {

using test::refusal;
using test::ScratchFolder;

enum class Fruit { kApple, kPear, kPlum };
std::string_view to_string(Fruit fruit) {
  return fruit == Fruit::kApple ? "apple" : fruit == Fruit::kPear ? "pear" : "plum";
}

// What reading the file `f.yaml` of this text refuses. The text's first line stands for the format.
std::string refused(const std::string& text) {
  const ScratchFolder folder;
  const auto file = folder.write("f.yaml", text);
  return refusal<ConfigError>(folder, [&] { YamlFile(file, Fault::kConfig).root("fruit/1"); });
}

// What `use` refuses of the file's map; the text follows the format, so it begins in line 2.
template <typename Use>
std::string refused(const std::string& text, Use use) {
  const ScratchFolder folder;
  const auto file = folder.write("f.yaml", "format: fruit/1\n" + text);
  return refusal<ConfigError>(folder, [&] {
    const YamlFile yaml(file, Fault::kConfig);
    YamlMap root = yaml.root("fruit/1");
    use(root);
  });
}

// The file's map is handed to `use` after the overrides.
template <typename Use>
void read(const std::string& text, const std::vector<std::string>& overrides, Use use) {
  const ScratchFolder folder;
  YamlFile yaml(folder.write("f.yaml", "format: fruit/1\n" + text), Fault::kConfig);
  for (const std::string& assignment : overrides) yaml.override_value(assignment);
  YamlMap root = yaml.root("fruit/1");
  use(root);
}

TEST(YamlReader, ReadsEveryType) {
  read(
      "text: some words\nquoted: '12'\ninteger: -3\nplus: +4\nnumber: 2.5e-3\nyes_no: true\nword: plum\n"
      "list: [a, \"b\"]\nmap:\n  deep: {deeper: 7}\n",
      {}, [](YamlMap& root) {
        EXPECT_EQ(root.required("text").text(), "some words");
        EXPECT_EQ(root.required("quoted").text(), "12");
        EXPECT_EQ(root.required("integer").integer(-3, 3), -3);
        EXPECT_EQ(root.required("plus").integer(0, 4), 4);
        EXPECT_EQ(root.required("number").positive_number(1), 2.5e-3);
        EXPECT_TRUE(root.required("yes_no").boolean());
        EXPECT_EQ(root.required("word").word({Fruit::kApple, Fruit::kPlum}), Fruit::kPlum);
        const auto list = root.required("list").list(1, 2);
        ASSERT_EQ(list.size(), 2U);
        EXPECT_EQ(list[1].text(), "b");
        EXPECT_EQ(root.required("map").map().required("deep").map().required("deeper").integer(7, 7), 7);
        EXPECT_FALSE(root.optional("absent"));
        root.refuse_unknown_keys();
      });
}

TEST(YamlReader, RefusesWrongTypesNamingPlaceKeyExpectedAndGot) {
  const auto integer = [](YamlMap& root) { root.required("k").integer(1, 9); };
  EXPECT_EQ(refused("k: x\n", integer), "f.yaml:2:4: key 'k': expected an integer from 1 to 9, got 'x'");
  EXPECT_EQ(refused("k: '5'\n", integer), "f.yaml:2:4: key 'k': expected an integer from 1 to 9, got the text '5'");
  EXPECT_EQ(refused("k: 10\n", integer), "f.yaml:2:4: key 'k': expected an integer from 1 to 9, got '10'");
  EXPECT_EQ(refused("k: 5.0\n", integer), "f.yaml:2:4: key 'k': expected an integer from 1 to 9, got '5.0'");
  EXPECT_EQ(refused("k: 99999999999999999999\n", integer),
            "f.yaml:2:4: key 'k': expected an integer from 1 to 9, got '99999999999999999999'");
  EXPECT_EQ(refused("k:   [5]\n", integer), "f.yaml:2:6: key 'k': expected an integer from 1 to 9, got a list");
  EXPECT_EQ(refused("k:\nl: 1\n", integer), "f.yaml:2:1: key 'k': expected an integer from 1 to 9, got nothing");
  EXPECT_EQ(refused("k: ~\n", integer), "f.yaml:2:1: key 'k': expected an integer from 1 to 9, got nothing");
  for (const char* odd : {"+-5", "0x5", "5 6", "1_0", "true", "--5"}) {
    EXPECT_NE(refused(std::string("k: ") + odd, integer).find("expected an integer"), std::string::npos) << odd;
  }

  const auto number = [](YamlMap& root) { root.required("k").positive_number(10); };
  for (const char* odd : {"0", "-1", "11", "nan", ".nan", "inf", ".inf", "1e999", "1e-999", "'1'", "x", "1,5"}) {
    EXPECT_NE(
        refused(std::string("k: ") + odd, number).find("f.yaml:2:4: key 'k': expected a number above 0 and at most 10"),
        std::string::npos)
        << odd;
  }
  const auto boolean = [](YamlMap& root) { root.required("k").boolean(); };
  EXPECT_EQ(refused("k: yes\n", boolean), "f.yaml:2:4: key 'k': expected true or false, got 'yes'");
  EXPECT_EQ(refused("k: \"true\"\n", boolean), "f.yaml:2:4: key 'k': expected true or false, got the text 'true'");
  const auto text = [](YamlMap& root) { root.required("k").text(); };
  EXPECT_EQ(refused("k: ''\n", text), "f.yaml:2:4: key 'k': expected text, got the text ''");
  EXPECT_EQ(refused("k: {a: b}\n", text), "f.yaml:2:4: key 'k': expected text, got a map");
  EXPECT_EQ(refused("k: 5\n", [](YamlMap& root) { root.required("k").map(); }),
            "f.yaml:2:4: key 'k': expected a map, got '5'");
  EXPECT_EQ(refused("k: 5\n", [](YamlMap& root) { root.required("k").list(1, 2); }),
            "f.yaml:2:4: key 'k': expected a list, got '5'");
  EXPECT_EQ(refused("k: [1, 2, 3]\n", [](YamlMap& root) { root.required("k").list(1, 2); }),
            "f.yaml:2:4: key 'k': expected a list of 1 to 2, got 3");
  EXPECT_EQ(refused("k: fig\n",
                    [](YamlMap& root) {
                      root.required("k").word({Fruit::kApple, Fruit::kPear, Fruit::kPlum});
                    }),
            "f.yaml:2:4: key 'k': expected one of apple, pear or plum, got 'fig'");
  EXPECT_EQ(refused("k: fig\n", [](YamlMap& root) { root.required("k").word({Fruit::kPear}); }),
            "f.yaml:2:4: key 'k': expected pear, got 'fig'");
}

TEST(YamlReader, NamesNestedKeysByTheirPath) {
  EXPECT_EQ(refused("a:\n  - b: 1\n  - b: x\n",
                    [](YamlMap& root) { root.required("a").list(1, 9)[1].map().required("b").integer(0, 1); }),
            "f.yaml:4:8: key 'a.1.b': expected an integer from 0 to 1, got 'x'");
}

TEST(YamlReader, RefusesMissingAndUnknownKeys) {
  EXPECT_EQ(refused("a:\n  b: 1\n", [](YamlMap& root) { root.required("a").map().required("c"); }),
            "f.yaml:3:3: key 'a.c': expected a value, got no such key");
  EXPECT_EQ(refused("a:\n  b: 1\n  d: 2\n",
                    [](YamlMap& root) {
                      YamlMap map = root.required("a").map();
                      map.required("b");
                      map.optional("c");
                      map.refuse_unknown_keys();
                    }),
            "f.yaml:4:3: key 'a.d': expected one of b, c, got an unknown key");
}

TEST(YamlReader, ChecksTheFormatFirst) {
  EXPECT_EQ(refused("format: fruit/2\n"), "f.yaml:1:9: key 'format': expected 'fruit/1', got 'fruit/2'");
  EXPECT_EQ(refused("a: 1\n"), "f.yaml:1:1: key 'format': expected a value, got no such key");
  EXPECT_EQ(refused("[1]\n"), "f.yaml:1:1: expected a map, got a list");
  EXPECT_EQ(refused("hello\n"), "f.yaml:1:1: expected a map, got 'hello'");
}

TEST(YamlReader, RefusesEmptyDocuments) {
  for (const char* empty : {"", "\n\n", "# only a comment\n", "---\n", "~\n"}) {
    EXPECT_NE(refused(empty).find(": expected a map, got nothing"), std::string::npos) << empty;
  }
}

TEST(YamlReader, TakesByteOrderMarkCarriageReturnsAndOneDocumentMarker) {
  const ScratchFolder folder;
  for (const char* text : {"\xef\xbb\xbf"
                           "format: fruit/1\n",
                           "format: fruit/1\r\n", "---\nformat: fruit/1\n...\n"}) {
    EXPECT_NO_THROW(YamlFile(folder.write("f.yaml", text), Fault::kConfig).root("fruit/1")) << text;
  }
}

TEST(YamlReader, RefusesAnchorsAliasesAndTags) {
  EXPECT_EQ(refused("a: &x 1\n"), "f.yaml:1:4: expected no anchors, got '&x'");
  EXPECT_EQ(refused("a: &x [*x]\n"), "f.yaml:1:4: expected no anchors, got '&x'");
  EXPECT_EQ(refused("a: *x\n"), "f.yaml:1:4: expected YAML, got an error: 'the referenced anchor is not defined'");
  EXPECT_EQ(refused("a: !!int 5\n"), "f.yaml:1:4: expected no tags, got 'tag:yaml.org,2002:int'");
  EXPECT_EQ(refused("a: !mine {b: 1}\n"), "f.yaml:1:4: expected no tags, got '!mine'");
  EXPECT_EQ(refused("a: !mine\n"), "f.yaml:1:4: expected no tags, got '!mine'");
}

TEST(YamlReader, RefusesFurtherDocuments) {
  EXPECT_EQ(refused("format: fruit/1\n---\nb: 1\n"), "f.yaml:2:1: expected one document, got a second one");
}

TEST(YamlReader, RefusesRepeatedAndOddKeys) {
  EXPECT_EQ(refused("a: 1\nb: 2\na: 3\n"), "f.yaml:3:1: expected key 'a' once, got it again");
  EXPECT_EQ(refused("? [a]\n: 1\n"), "f.yaml:1:3: expected a key that is text, got a list");
  EXPECT_EQ(refused("? {a: b}\n: 1\n"), "f.yaml:1:3: expected a key that is text, got a map");
  EXPECT_EQ(refused("~: 1\n"), "f.yaml:1:1: expected a key that is text, got nothing");
}

TEST(YamlReader, RefusesMalformedText) {
  EXPECT_EQ(refused("a: [1, 2\n"), "f.yaml:1:1: expected YAML, got an error: 'end of sequence flow not found'");
  EXPECT_EQ(refused("a: b: c\n"), "f.yaml:1:5: expected YAML, got an error: 'illegal map value'");
  EXPECT_EQ(refused("a:\n\tb: 1\n"), "f.yaml:2:1: expected spaces at the beginning of a line, got a tab");
  EXPECT_EQ(refused("a: 'x\n"), "f.yaml:1:6: expected YAML, got an error: 'illegal EOF in scalar'");
  EXPECT_NE(refused("]\n").find("f.yaml:1:"), std::string::npos);
}

TEST(YamlReader, RefusesBytesThatAreNoText) {
  using std::string_literals::operator""s;
  EXPECT_EQ(refused("a: 1\nb: x\0y\n"s), "f.yaml:2:5: expected text, got byte 0x0");
  EXPECT_EQ(refused("a: 1\x04\nb: 2\n"), "f.yaml:1:5: expected text, got byte 0x4");
  EXPECT_EQ(refused("a: \x7f\n"), "f.yaml:1:4: expected text, got byte 0x7f");
  EXPECT_EQ(refused("\xff\xfe"
                    "a\0"s),
            "f.yaml:1:1: expected UTF-8 text, got byte 0xff");
  EXPECT_EQ(refused("a: \xc3\xa9\xc3\n"), "f.yaml:1:5: expected UTF-8 text, got byte 0xc3");
  for (const char* odd :
       {"\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf8", "\xe2\x82"}) {
    EXPECT_NE(refused(odd).find("expected UTF-8 text"), std::string::npos);
  }
  EXPECT_EQ(refused("a: \"x\\0y\"\n"),
            "f.yaml:1:4: expected text on one line without control characters, got 'x\\x00y'");
  EXPECT_EQ(refused("a: |\n  x\n  y\n"),
            "f.yaml:1:4: expected text on one line without control characters, got 'x\\ny'");
}

TEST(YamlReader, TakesEveryLengthOfUtf8) {
  read("k: \xc3\xa9\xe2\x82\xac\xf0\x9f\x8e\xb5\n", {},
       [](YamlMap& root) { EXPECT_EQ(root.required("k").text(), "\xc3\xa9\xe2\x82\xac\xf0\x9f\x8e\xb5"); });
}

TEST(YamlReader, KeepsItsBudgets) {
  const std::string levels = std::string(33, '[') + std::string(33, ']');
  EXPECT_EQ(refused(levels), "f.yaml:1:33: expected at most 32 levels, got more");
  EXPECT_EQ(refused(levels.substr(1, 64)), "f.yaml:1:1: expected a map, got a list");
  EXPECT_EQ(refused(std::string(1000000, '[')), "f.yaml:1:50001: expected at most 50000 brackets, got more");
  std::string nested;
  for (int i = 0; i < 33; ++i) nested += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  EXPECT_NE(refused(nested + std::string(33, ' ') + "a: 1\n").find("expected at most 32 levels"), std::string::npos);
  std::string many = "[";
  for (int i = 0; i < 50001; ++i) many += "1,\n";
  EXPECT_EQ(refused(many), "f.yaml:50001:1: expected at most 50000 values, got more");
  EXPECT_EQ(refused(std::string((std::size_t{1} << 20) + 1, ' ')),
            "f.yaml: expected at most 1048576 bytes, got 1048577");
}

TEST(YamlReader, RefusesWhatIsNoFile) {
  const ScratchFolder folder;
  EXPECT_EQ(refusal<ConfigError>(folder, [&] { YamlFile(folder.path() / "no.yaml", Fault::kConfig); }),
            "no.yaml: expected a readable file, got: No such file or directory");
  std::filesystem::create_directory(folder.path() / "d.yaml");
  EXPECT_EQ(refusal<ConfigError>(folder, [&] { YamlFile(folder.path() / "d.yaml", Fault::kConfig); }),
            "d.yaml: expected a regular file, got a directory");
}

TEST(YamlReader, ThrowsTheErrorOfTheFilesKind) {
  const ScratchFolder folder;
  EXPECT_THROW(YamlFile(folder.path() / "no.yaml", Fault::kModel), ModelError);
  EXPECT_THROW(YamlFile(folder.path() / "no.yaml", Fault::kConfig), ConfigError);
}

TEST(YamlReader, OverridesValuesInPlace) {
  read("a: {b: 1}\nl: [{u: x}, {u: y}]\n", {"a.b=2", "l.1.u=npy://z?q=1&r=2", "new.k=true", "a.b=3", "text='7'"},
       [](YamlMap& root) {
         EXPECT_EQ(root.required("a").map().required("b").integer(0, 9), 3);
         EXPECT_EQ(root.required("l").list(2, 2)[0].map().required("u").text(), "x");
         EXPECT_EQ(root.required("l").list(2, 2)[1].map().required("u").text(), "npy://z?q=1&r=2");
         EXPECT_TRUE(root.required("new").map().required("k").boolean());
         EXPECT_EQ(root.required("text").text(), "7");
       });
}

TEST(YamlReader, RefusesOverridesNamingThem) {
  const ScratchFolder folder;
  const auto file = folder.write("f.yaml", "format: fruit/1\na: {b: 1}\nl: [x]\n");
  const auto refused_override = [&](const std::string& assignment) {
    return refusal<ConfigError>(folder, [&] {
      YamlFile yaml(file, Fault::kConfig);
      yaml.override_value(assignment);
      YamlMap root = yaml.root("fruit/1");
      YamlMap map = root.required("a").map();
      map.required("b").integer(0, 5);
      map.refuse_unknown_keys();
      root.required("l").list(1, 1)[0].text();
      root.refuse_unknown_keys();
    });
  };
  EXPECT_EQ(refused_override("a.b"), "f.yaml: override 'a.b': expected key=value, got no '='");
  EXPECT_EQ(refused_override("=1"), "f.yaml: override '=1': expected a dotted key, got ''");
  EXPECT_EQ(refused_override("a.=1"), "f.yaml: override 'a.=1': expected a dotted key, got 'a.'");
  EXPECT_EQ(refused_override("a.b=x"), "f.yaml: override 'a.b=x': key 'a.b': expected an integer from 0 to 5, got 'x'");
  EXPECT_EQ(refused_override("a.b="),
            "f.yaml: override 'a.b=': key 'a.b': expected an integer from 0 to 5, got nothing");
  EXPECT_EQ(refused_override("a.c=1"), "f.yaml: override 'a.c=1': key 'a.c': expected one of b, got an unknown key");
  EXPECT_EQ(refused_override("c.d=1"),
            "f.yaml: override 'c.d=1': key 'c': expected one of format, a, l, got an unknown key");
  EXPECT_EQ(refused_override("a=1"), "f.yaml: override 'a=1': key 'a': expected a map, got '1'");
  EXPECT_EQ(refused_override("a.b.c=1"), "f.yaml: override 'a.b.c=1': key 'a.b': expected a map or list, got '1'");
  EXPECT_EQ(refused_override("l.1=y"),
            "f.yaml: override 'l.1=y': key 'l.1': expected the index of one of 1 entries, got '1'");
  EXPECT_EQ(refused_override("l.x=y"),
            "f.yaml: override 'l.x=y': key 'l.x': expected the index of one of 1 entries, got 'x'");
  EXPECT_EQ(refused_override("a.b=[1]"), "f.yaml: override 'a.b=[1]': expected a single value, got a list");
  EXPECT_EQ(refused_override("a.b=&x 1"), "f.yaml: override 'a.b=&x 1': expected no anchors, got '&x'");
  EXPECT_EQ(refused_override("format=fruit/3"),
            "f.yaml: override 'format=fruit/3': key 'format': expected 'fruit/1', got 'fruit/3'");
}

}  // namespace
}  // namespace halotap::pipeline
