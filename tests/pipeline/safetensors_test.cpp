#include "safetensors.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <limits>

#include "halotap/pipeline/errors.hpp"
#include "pipeline/refusal.hpp"
#include "pipeline/safetensors_builder.hpp"

namespace halotap::pipeline {
namespace {

using test::bytes_of;
using test::refusal;
using test::safetensors_bytes;
using test::SafetensorsBuilder;
using test::ScratchFolder;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Opens a file of these bytes, named w.safetensors.
SafetensorsFile opened(const ScratchFolder& folder, const std::string& bytes) {
  return SafetensorsFile(folder.write("w.safetensors", bytes));
}

std::string refused(const std::string& bytes) {
  const ScratchFolder folder;
  return refusal<ModelError>(folder, [&] { opened(folder, bytes); });
}

std::string refused(const std::string& header, const std::string& data) {
  return refused(safetensors_bytes(header, data));
}

// One tensor `x` with these fields, over 8 bytes of data.
std::string refused_tensor(const std::string& fields) { return refused("{\"x\":{" + fields + "}}", "12345678"); }

template <typename Number>
std::vector<double> read_back(const std::string& dtype, const std::vector<Number>& numbers) {
  const ScratchFolder folder;
  const auto count = static_cast<std::int64_t>(numbers.size());
  return opened(folder, SafetensorsBuilder().add("x", dtype, {count}, bytes_of(numbers)).bytes()).read("x");
}

TEST(SafetensorsFile, ReadsFloat32Exactly) {
  const std::vector<float> numbers = {0, -0.0F, 1.1F, -3e38F, 1e-45F, INFINITY, -INFINITY};
  EXPECT_EQ(read_back("F32", numbers), std::vector<double>(numbers.begin(), numbers.end()));
  EXPECT_TRUE(std::isnan(read_back("F32", std::vector<float>{NAN})[0]));
}

TEST(SafetensorsFile, ReadsFloat64Exactly) {
  const std::vector<double> numbers = {0.1, -1e300, 5e-324, kInfinity};
  EXPECT_EQ(read_back("F64", numbers), numbers);
}

TEST(SafetensorsFile, ReadsFloat16Exactly) {
  const std::vector<std::uint16_t> bits = {0x0000, 0x3c00, 0xc000, 0x7bff, 0x0400,
                                           0x0001, 0x83ff, 0x3555, 0x7c00, 0xfc00};
  const std::vector<double> expected = {0,       1,          -2,        65504,     0x1p-14,
                                        0x1p-24, -0x3ffp-24, 0x555p-12, kInfinity, -kInfinity};
  EXPECT_EQ(read_back("F16", bits), expected);
  EXPECT_TRUE(std::signbit(read_back("F16", std::vector<std::uint16_t>{0x8000})[0]));
  EXPECT_TRUE(std::isnan(read_back("F16", std::vector<std::uint16_t>{0x7e01})[0]));
}

TEST(SafetensorsFile, ReadsBfloat16Exactly) {
  const std::vector<std::uint16_t> bits = {0x0000, 0x3f80, 0xc000, 0x7f7f, 0x0080, 0x0001, 0x7f80, 0xff80};
  const std::vector<double> expected = {0, 1, -2, 0x0.ffp128, 0x1p-126, 0x1p-133, kInfinity, -kInfinity};
  EXPECT_EQ(read_back("BF16", bits), expected);
  EXPECT_TRUE(std::isnan(read_back("BF16", std::vector<std::uint16_t>{0x7fc0})[0]));
}

TEST(SafetensorsFile, ReadsTensorsLongerThanItsBufferInOrder) {
  std::vector<float> numbers(50001);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  EXPECT_EQ(read_back("F32", numbers), std::vector<double>(numbers.begin(), numbers.end()));
}

TEST(SafetensorsFile, TellsShapesAndTakesScalarsEmptyTensorsAndMetadata) {
  const ScratchFolder folder;
  const SafetensorsFile file = opened(
      folder,
      safetensors_bytes("{\"__metadata__\":{\"format\":\"pt\"},"
                        "\"a.b\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[8,16]},"
                        "\"n\":{\"shape\":[],\"data_offsets\":[0,8],\"dtype\":\"I64\"},"
                        "\"none\":{\"dtype\":\"F16\",\"shape\":[4294967296,4294967296,0],\"data_offsets\":[8,8]}}   ",
                        std::string(16, '\0')));
  ASSERT_EQ(file.tensors().size(), 3U);
  EXPECT_EQ(file.tensors().at("a.b").shape, (std::vector<std::int64_t>{1, 2}));
  EXPECT_TRUE(file.tensors().at("n").shape.empty());
  EXPECT_TRUE(file.read("none").empty());
}

TEST(SafetensorsFile, RefusesToReadOtherTypesThanFloats) {
  const ScratchFolder folder;
  const SafetensorsFile file = opened(folder, SafetensorsBuilder().add("x", "I64", {1}, "12345678").bytes());
  EXPECT_EQ(refusal<ModelError>(folder, [&] { file.read("x"); }),
            "w.safetensors: tensor 'x': dtype: expected F16, BF16, F32 or F64, got I64");
  EXPECT_EQ(refusal<ModelError>(folder, [&] { file.read("y"); }),
            "w.safetensors: tensor 'y': expected in the file, got no such tensor");
}

TEST(SafetensorsFile, RefusesWhatIsNoFile) {
  const ScratchFolder folder;
  EXPECT_EQ(refusal<ModelError>(folder, [&] { SafetensorsFile{folder.path() / "no"}; }),
            "no: expected a readable file, got: No such file or directory");
  std::filesystem::create_directory(folder.path() / "d");
  EXPECT_EQ(refusal<ModelError>(folder, [&] { SafetensorsFile{folder.path() / "d"}; }),
            "d: expected a regular file, got a directory");
  ASSERT_EQ(mkfifo((folder.path() / "f").c_str(), 0600), 0);
  EXPECT_EQ(refusal<ModelError>(folder, [&] { SafetensorsFile{folder.path() / "f"}; }),
            "f: expected a regular file, got a FIFO");
}

TEST(SafetensorsFile, RefusesEmptyAndShortFiles) {
  EXPECT_EQ(refused(""), "w.safetensors: expected at least 8 bytes, got 0");
  EXPECT_EQ(refused("1234567"), "w.safetensors: expected at least 8 bytes, got 7");
  EXPECT_EQ(refused(std::string(8, '\0')), "w.safetensors: header, byte 8: expected '{', got ''");
}

TEST(SafetensorsFile, RefusesHeadersLongerThanTheFileOrTheLimit) {
  const std::string cut = safetensors_bytes("{}", "").substr(0, 9);
  EXPECT_EQ(refused(cut), "w.safetensors: header length in bytes 0 to 7: expected at most 1, got 2");
  EXPECT_EQ(refused(std::string(16, '\xff')),
            "w.safetensors: header length in bytes 0 to 7: expected at most 8, got 18446744073709551615");
  const std::size_t beyond = (std::size_t{16} << 20) + 1;
  EXPECT_EQ(refused("{}" + std::string(beyond - 2, ' '), ""),
            "w.safetensors: header length in bytes 0 to 7: expected at most 16777216, got 16777217");
}

TEST(SafetensorsFile, RefusesFilesCutAnywhere) {
  const std::string whole = SafetensorsBuilder().add("x", {2, 2}, 1.5F).add("y", {3}, -1.0F).bytes();
  const ScratchFolder folder;
  EXPECT_NO_THROW(opened(folder, whole));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(refusal<ModelError>(folder, [&] { opened(folder, whole.substr(0, length)); }), "") << length;
  }
  EXPECT_EQ(refused(whole + "1"), "w.safetensors: expected 28 bytes of data after the header, got 29");
}

TEST(SafetensorsFile, RefusesMalformedJson) {
  EXPECT_EQ(refused("{\"x\":}", ""), "w.safetensors: header, byte 13: expected JSON, got '\"x\":}'");
  EXPECT_EQ(refused("{} {}", ""), "w.safetensors: header, byte 11: expected JSON, got '{} {'");
  EXPECT_EQ(refused("[]", ""), "w.safetensors: header, byte 8: expected '{', got '['");
  EXPECT_EQ(refused("\xef\xbb\xbf{}", ""), "w.safetensors: header, byte 8: expected '{', got '\\xef'");
  EXPECT_EQ(refused(std::string("{}\0\0", 4), ""), "w.safetensors: header, byte 10: expected JSON, got a NUL byte");
  EXPECT_NE(refused("{\"\xff\":{}}", "").find("expected JSON"), std::string::npos);
  EXPECT_NE(refused("{\"a\n\":{}}", "").find("expected JSON"), std::string::npos);
}

TEST(SafetensorsFile, RefusesOtherValuesThanTheFormatHas) {
  EXPECT_EQ(refused("{\"x\":null}", ""), "w.safetensors: tensor 'x': expected an object, got null");
  EXPECT_EQ(refused("{\"x\":\"y\"}", ""), "w.safetensors: tensor 'x': expected an object, got 'y'");
  EXPECT_EQ(refused("{\"__metadata__\":{\"a\":{}}}", ""), "w.safetensors: __metadata__: expected text, got an object");
  EXPECT_EQ(refused("{\"__metadata__\":{\"a\":1}}", ""), "w.safetensors: __metadata__: expected text, got 1");
  EXPECT_EQ(refused("{\"__metadata__\":[]}", ""), "w.safetensors: __metadata__: expected an object, got a list");
  EXPECT_EQ(refused_tensor("\"dtype\":1"), "w.safetensors: tensor 'x': dtype: expected text, got 1");
  EXPECT_EQ(refused_tensor("\"dtype\":\"F31\""),
            "w.safetensors: tensor 'x': dtype: expected a dtype of the format, got 'F31'");
  EXPECT_EQ(refused_tensor("\"shape\":2"), "w.safetensors: tensor 'x': shape: expected a list of integers, got 2");
  EXPECT_EQ(refused_tensor("\"shape\":[-1]"),
            "w.safetensors: tensor 'x': shape: expected integers from 0 to 2^63-1, got -1");
  EXPECT_EQ(refused_tensor("\"shape\":[1.5]"),
            "w.safetensors: tensor 'x': shape: expected integers from 0 to 2^63-1, got 1.5");
  EXPECT_EQ(refused_tensor("\"shape\":[9223372036854775808]"),
            "w.safetensors: tensor 'x': shape: expected integers from 0 to 2^63-1, got 9223372036854775808");
  EXPECT_EQ(refused_tensor("\"shape\":[true]"),
            "w.safetensors: tensor 'x': shape: expected integers from 0 to 2^63-1, got true");
  EXPECT_EQ(refused_tensor("\"shape\":[[1]]"),
            "w.safetensors: tensor 'x': shape: expected integers from 0 to 2^63-1, got a list");
  EXPECT_EQ(refused_tensor("\"shape\":[1,1,1,1,1,1,1,1,1]"),
            "w.safetensors: tensor 'x': shape: expected at most 8 axes, got more");
  EXPECT_EQ(refused_tensor("\"data_offsets\":[0,1,2]"),
            "w.safetensors: tensor 'x': data_offsets: expected 2 integers, got more");
  EXPECT_EQ(refused_tensor("\"stride\":1"),
            "w.safetensors: tensor 'x': expected dtype, shape and data_offsets, got 'stride'");
}

TEST(SafetensorsFile, RefusesMissingFields) {
  EXPECT_EQ(refused("{\"x\":{}}", ""), "w.safetensors: tensor 'x': expected dtype, got none");
  EXPECT_EQ(refused_tensor("\"dtype\":\"F32\",\"shape\":[2]"),
            "w.safetensors: tensor 'x': expected data_offsets, got none");
  EXPECT_EQ(refused_tensor("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]"),
            "w.safetensors: tensor 'x': data_offsets: expected 2 integers, got 1");
}

TEST(SafetensorsFile, RefusesRepeatedKeys) {
  const std::string tensor = "{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}";
  EXPECT_EQ(refused("{\"x\":" + tensor + ",\"x\":" + tensor + "}", "1234"),
            "w.safetensors: tensor 'x': expected once, got again");
  EXPECT_EQ(refused_tensor("\"shape\":[1],\"shape\":[2]"),
            "w.safetensors: tensor 'x': 'shape': expected once, got again");
  EXPECT_EQ(refused("{\"__metadata__\":{},\"__metadata__\":{}}", ""),
            "w.safetensors: __metadata__: expected once, got again");
  EXPECT_EQ(refused("{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", ""),
            "w.safetensors: metadata 'a': expected once, got again");
}

TEST(SafetensorsFile, RefusesSpansThatDoNotFit) {
  EXPECT_EQ(refused_tensor("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]"),
            "w.safetensors: tensor 'x': data_offsets: expected [begin,end] with begin <= end <= 8 (the data's bytes), "
            "got [8,0]");
  EXPECT_EQ(refused_tensor("\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]"),
            "w.safetensors: tensor 'x': data_offsets: expected [begin,end] with begin <= end <= 8 (the data's bytes), "
            "got [0,12]");
  EXPECT_EQ(refused_tensor("\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[0,8]"),
            "w.safetensors: tensor 'x': data_offsets: expected 6 bytes for F16 [3], got 8");
}

TEST(SafetensorsFile, RefusesShapesWhoseProductOverflows) {
  // 2^62 * 4 bytes is 2^64, which is 0 in 64 bits.
  EXPECT_EQ(refused_tensor("\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]"),
            "w.safetensors: tensor 'x': data_offsets: expected over 2^64 bytes for F32 [4611686018427387904], got 0");
}

TEST(SafetensorsFile, RefusesOverlapsAndGaps) {
  const std::string x = "\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}";
  EXPECT_EQ(refused("{" + x + ",\"y\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}", "123456"),
            "w.safetensors: tensor 'y': data_offsets: expected a begin of 4 (the end of 'x'), got [2,6], an overlap");
  EXPECT_EQ(refused("{\"y\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[5,6]}," + x + "}", "123456"),
            "w.safetensors: tensor 'y': data_offsets: expected a begin of 4 (the end of 'x'), got [5,6], a gap");
  EXPECT_EQ(refused("{\"y\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", "12"),
            "w.safetensors: tensor 'y': data_offsets: expected a begin of 0, got [1,2], a gap");
  EXPECT_EQ(refused("{" + x + "}", "123456"), "w.safetensors: expected 4 bytes of data after the header, got 6");
}

TEST(SafetensorsFile, RefusesMoreEntriesThanAModelCanUse) {
  std::string header = "{\"__metadata__\":{\"0\":\"\"";
  for (int i = 1; i <= 65536; ++i) header += ",\"" + std::to_string(i) + "\":\"\"";
  EXPECT_EQ(refused(header + "}}", ""),
            "w.safetensors: header: expected at most 65536 tensors and metadata entries, got more");
}

TEST(SafetensorsFile, EndsDeepNestingAtOnce) {
  EXPECT_EQ(refused("{\"x\":" + std::string(1000000, '['), ""),
            "w.safetensors: tensor 'x': expected an object, got a list");
}

TEST(SafetensorsFile, KeepsOddNamesFromBreakingTheMessage) {
  EXPECT_EQ(refused("{\"a\\nb\\u001b" + std::string(200, 'c') + "\":1}", ""),
            "w.safetensors: tensor 'a\\nb\\x1b" + std::string(76, 'c') + "...': expected an object, got 1");
}

}  // namespace
}  // namespace halotap::pipeline
