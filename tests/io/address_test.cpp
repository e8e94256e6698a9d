#include "address.hpp"

#include <gtest/gtest.h>

#include "expect_error.hpp"
#include "halotap/pipeline/errors.hpp"

namespace halotap::io {
namespace {

using pipeline::ConfigError;

TEST(Address, TakesTheSchemeFromTheExtension) {
  const std::vector<std::vector<std::string>> cases = {
      {"a/x.npy", "npy"}, {"x.npz", "npz"}, {"x.csv", "csv"}, {"x.jsonl", "jsonl"}, {"x.wav", "wav"},
      {"x.flac", "flac"}, {"x.ogg", "ogg"}, {"x.oga", "ogg"}, {"x.png", "png"},     {"X.WAV", "wav"},
  };
  for (const auto& item : cases) {
    const Address address(item[0]);
    EXPECT_EQ(address.scheme(), item[1]);
    EXPECT_EQ(address.path(), item[0]);
    EXPECT_EQ(address.text(), item[0]);
  }
}

TEST(Address, TakesSchemePathAndOptionsApart) {
  Address address("NPZ:///data/a%20b%3F.bin?array=left%26right&rate=16000");
  EXPECT_EQ(address.scheme(), "npz");
  EXPECT_EQ(address.path(), "/data/a b?.bin");
  EXPECT_EQ(address.take("array"), "left&right");
  EXPECT_EQ(address.take_number("rate", 1, 1e6), 16000.0);
  EXPECT_EQ(address.take("array"), std::nullopt);
  address.require_all_options_taken("array, rate");
}

TEST(Address, ReadsOptionsBehindABarePath) {
  Address address("x.wav?resample=true");
  EXPECT_EQ(address.path(), "x.wav");
  EXPECT_EQ(address.take_bool("resample"), true);
}

TEST(Address, LeavesQuestionAndPercentMarksInABarePath) {
  EXPECT_EQ(Address("what?.npy").path(), "what?.npy");
  EXPECT_EQ(Address("100%25.npy").path(), "100%25.npy");
  EXPECT_EQ(Address("dir/x://y.csv").path(), "dir/x://y.csv");
}

TEST(Address, RefusesWhatHasNoFormat) {
  expect_error<ConfigError>([] { Address(""); }, {"empty address"});
  expect_error<ConfigError>([] { Address("x.txt"); }, {"x.txt", ".npy", "scheme://"});
  expect_error<ConfigError>([] { Address("-"); }, {"-: ", "scheme://"});
  expect_error<ConfigError>([] { Address("npy"); }, {"npy"});
  expect_error<ConfigError>([] { Address(std::string("a\0.npy", 6)); }, {"zero byte"});
}

TEST(Address, RefusesMalformedOptions) {
  expect_error<ConfigError>([] { Address("npy://x?"); }, {"npy://x?", "option=value", "got ''"});
  expect_error<ConfigError>([] { Address("npy://x?rate"); }, {"option=value", "'rate'"});
  expect_error<ConfigError>([] { Address("npy://x?=1"); }, {"option=value", "'=1'"});
  expect_error<ConfigError>([] { Address("npy://x?a=1&"); }, {"option=value", "got ''"});
  expect_error<ConfigError>([] { Address("npy://x?a=1&a=2"); }, {"'a'", "twice"});
  expect_error<ConfigError>([] { Address("npy://x%2"); }, {"hex digits", "'%2'"});
  expect_error<ConfigError>([] { Address("npy://x%zz"); }, {"hex digits", "'%zz'"});
  expect_error<ConfigError>([] { Address("npy://x%00y"); }, {"hex digits", "'%00'"});
}

TEST(Address, RefusesOptionValuesOfAnotherKind) {
  const auto address = [](const std::string& value) { return Address("npy://x?o=" + value); };
  expect_error<ConfigError>([&] { (void)address("yes").take_bool("o"); }, {"option o", "true or false", "'yes'"});
  for (const std::string value : {"", "abc", "5x", "0", "101", "nan", "inf", "1e3", " 5"}) {
    expect_error<ConfigError>([&] { (void)address(value).take_number("o", 1, 100); },
                              {"npy://x?o=" + value, "option o", "1 to 100", "'" + value + "'"});
  }
  expect_error<ConfigError>([&] { (void)address("1.5").take_integer("o", 1, 100); }, {"an integer", "'1.5'"});
  EXPECT_EQ(address("100").take_integer("o", 1, 100), 100);
  EXPECT_EQ(address("1.5").take_number("o", 1, 100), 1.5);
}

TEST(Address, SplitsLists) {
  EXPECT_EQ(Address("csv://x?c=a,2,b%20c").take_list("c"), (std::vector<std::string>{"a", "2", "b c"}));
  EXPECT_EQ(Address("csv://x").take_list("c"), std::nullopt);
  for (const std::string value : {"", ",", "a,", ",a", "a,,b"}) {
    expect_error<ConfigError>([&] { (void)Address("csv://x?c=" + value).take_list("c"); }, {"option c", value});
  }
}

TEST(Address, NamesOptionsThatNobodyTook) {
  Address address("npy://x?rat=1&rate=2");
  (void)address.take("rate");
  expect_error<ConfigError>([&] { address.require_all_options_taken("rate"); }, {"'rat'", "npy has rate"});
}

}  // namespace
}  // namespace halotap::io
