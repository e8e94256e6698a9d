#include "csv/csv_source.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "expect_error.hpp"
#include "halotap/pipeline/errors.hpp"
#include "read_all.hpp"
#include "scratch_folder.hpp"

namespace halotap::io {
namespace {

using pipeline::ConfigError;
using pipeline::DataError;
using test::ScratchFolder;
using Names = std::vector<std::string>;

// What a file of this content is read as, and its channels' names.
struct Read {
  std::vector<float> values;
  std::int64_t channels = 0;
  Names names;
};

Read read(const std::string& content, const std::string& options = "") {
  const ScratchFolder folder;
  const auto source = open_source(folder.write("x.csv", content) + options, {});
  EXPECT_EQ(source->info().frames, -1);
  EXPECT_EQ(source->info().streams, 1);
  Read result;
  result.values = read_all(*source, 2);
  result.channels = source->info().channels;
  result.names = source->info().channel_names;
  return result;
}

TEST(CsvSource, ReadsRowsAsFrames) {
  const Read plain = read("1,2.5\n-3e2,4\n0,+1\n");
  EXPECT_EQ(plain.values, (std::vector<float>{1, 2.5, -300, 4, 0, 1}));
  EXPECT_EQ(plain.channels, 2);
  EXPECT_TRUE(plain.names.empty());
  EXPECT_EQ(read("7").values, (std::vector<float>{7}));
}

TEST(CsvSource, TakesAFirstRowOfNamesAsHeader) {
  const Read named = read("left,right\n1,2\n");
  EXPECT_EQ(named.names, (Names{"left", "right"}));
  EXPECT_EQ(named.values, (std::vector<float>{1, 2}));
  EXPECT_EQ(read("\"a,b\", \"say \"\"x\"\"\" ,c d\n1,2,3").names, (Names{"a,b", "say \"x\"", "c d"}));
  EXPECT_EQ(read("\"1\",\"2\"\n3,4\n").names, (Names{"1", "2"})) << "quotes make a name of a number";
}

TEST(CsvSource, TakesAHeaderByHand) {
  const Read named = read("0,1\n5,6\n", "?header=true");
  EXPECT_EQ(named.names, (Names{"0", "1"}));
  EXPECT_EQ(named.values, (std::vector<float>{5, 6}));
  EXPECT_EQ(read("x,1\n5,6\n", "?header=true").names, (Names{"x", "1"}));
}

TEST(CsvSource, TakesAHeaderWithoutFrames) {
  const Read named = read("a,b\n");
  EXPECT_EQ(named.channels, 2);
  EXPECT_TRUE(named.values.empty());
}

TEST(CsvSource, ReadsWindowsLineEndsAndByteOrderMarks) {
  EXPECT_EQ(read("\xef\xbb\xbf"
                 "a,b\r\n1,2\r\n3,4\r\n")
                .names,
            (Names{"a", "b"}));
  EXPECT_EQ(read("\xef\xbb\xbf"
                 "1,2\r\n3,4")
                .values,
            (std::vector<float>{1, 2, 3, 4}));
}

TEST(CsvSource, LetsBlankLinesEndTheFile) { EXPECT_EQ(read("1\n2\n\n\r\n").values, (std::vector<float>{1, 2})); }

TEST(CsvSource, ReadsOtherDelimiters) {
  EXPECT_EQ(read("a b;c\n1;2\n", "?delimiter=;").names, (Names{"a b", "c"}));
  EXPECT_EQ(read("1\t 2 \n", "?delimiter=tab").values, (std::vector<float>{1, 2}));
  EXPECT_EQ(read(" 1 ,\t2\n").values, (std::vector<float>{1, 2}));
  expect_error<ConfigError>([] { read("1\n", "?delimiter=x"); }, {"delimiter", "tab", "'x'"});
}

TEST(CsvSource, ReadsNanAndInfAsArrayProgramsWriteThem) {
  const std::vector<float> values = read("nan,NaN,-nan,inf,-inf\n").values;
  EXPECT_TRUE(std::isnan(values[0]) && std::isnan(values[1]) && std::isnan(values[2]));
  EXPECT_EQ(values[3], HUGE_VALF);
  EXPECT_EQ(values[4], -HUGE_VALF);
}

TEST(CsvSource, RoundsOnceAndKeepsDoubles) {
  // Just above the middle of two floats, by less than a double shows.
  EXPECT_EQ(read("1.000000059604644775390625000001").values[0], std::nextafter(1.0f, 2.0f));
  EXPECT_EQ(read("1e300,1e-300").values, (std::vector<float>{HUGE_VALF, 0}));
  const ScratchFolder folder;
  const auto source = open_source(folder.write("x.csv", "0.1,1e300\n"), {});
  EXPECT_EQ(read_all<double>(*source), (std::vector<double>{0.1, 1e300}));
}

// More than the reader's buffer, so that rows lie across its ends.
TEST(CsvSource, ReadsLongFilesAndRows) {
  std::string content;
  std::vector<float> expected;
  for (int row = 0; row < 30; ++row) {
    for (int column = 0; column < 16384; ++column) {
      const int value = row * 7 + column;
      content += (column > 0 ? "," : "") + std::to_string(value);
      expected.push_back(static_cast<float>(value));
    }
    content += '\n';
  }
  EXPECT_TRUE(read(content).values == expected);
}

TEST(CsvSource, RefusesMalformedRowsByRowAndColumn) {
  const auto refuse = [](const std::string& content, const std::vector<std::string>& parts,
                         const std::string& options = "") {
    expect_error<DataError>([&] { read(content, options); }, parts);
  };
  refuse("", {"x.csv: ", "empty file"});
  refuse("\n\n", {"empty file"});
  refuse("\xef\xbb\xbf", {"empty file"});
  refuse("1,2\n3\n", {"row 2: expected 2 columns", "got 1"});
  refuse("a,b\n1,2\n3,4,5\n", {"row 3: expected 2 columns", "got 3"});
  refuse("1,2\n3,\n", {"row 2, column 2: missing value"});
  refuse("1,2\n ,4\n", {"row 2, column 1: missing value"});
  refuse("1,,3\n", {"row 1, column 2", "got nothing"});
  refuse("a,,c\n", {"row 1, column 2", "got nothing"});
  refuse("1,2\n\n3,4\n", {"row 2: blank"});
  refuse("1,2\n3,abc\n", {"row 2, column 2", "'abc'"});
  refuse("1,2\n3,4x\n", {"row 2, column 2", "'4x'"});
  refuse("1,2\n3,4 5\n", {"row 2, column 2", "'4 5'"});
  refuse("1,2\n3,\"4\"\n", {"row 2, column 2", "'\"4\"'"});
  refuse("1,2\n3,0x10\n", {"row 2, column 2", "'0x10'"});
  refuse("1,2\n3,+-4\n", {"row 2, column 2", "'+-4'"});
  refuse("1,2\n3,nan(1)\n", {"row 2, column 2", "'nan(1)'"});
  refuse("1,2\n3,infinity\n", {"row 2, column 2", "'infinity'"});
  refuse("1,2\n3,1e999\n", {"row 2, column 2", "'1e999'"});
  refuse("1,2\r3,4\r", {"row 1, column 2", "'2?3'"});
  refuse(std::string("1,2\n3,\0\n", 8), {"row 2, column 2", "'?'"});
  refuse("1,abc\n", {"row 1, column 2", "'abc' beside '1'", "header=true"});
  refuse("a,b\n1,2\n", {"row 1, column 1", "'a'"}, "?header=false");
  refuse("a,a\n", {"row 1, column 2", "'a'", "already"});
  refuse("a,\"b\n1,2\n", {"row 1, column 2", "closing quote"});
  refuse("a,\"b\"c\n", {"row 1, column 2", "delimiter", "'c'"});
  refuse("a,b\x01\n", {"row 1, column 2", "control characters"});
}

TEST(CsvSource, BoundsRowsAndColumns) {
  const auto refuse = [](const std::string& content, const std::vector<std::string>& parts) {
    expect_error<DataError>([&] { read(content); }, parts);
  };
  std::string wide = "1";
  for (int column = 1; column <= 16384; ++column) wide += ",1";
  refuse(wide, {"row 1", "16384 columns"});
  refuse(std::string(3 << 20, '1'), {"row 1", "1048576 bytes"});
  refuse("1\n" + std::string((1 << 20) + 1, '1') + "\n", {"row 2", "1048576 bytes"});
}

TEST(CsvSource, RefusesWhatIsNoFile) {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder.file("d.csv"));
  ASSERT_EQ(mkfifo(folder.file("p.csv").c_str(), 0600), 0);
  expect_error<DataError>([&] { open_source(folder.file("d.csv"), {}); }, {folder.file("d.csv"), "got a folder"});
  expect_error<DataError>([&] { open_source(folder.file("p.csv"), {}); }, {folder.file("p.csv"), "pipe"});
  expect_error<DataError>([&] { open_source(folder.file("m.csv"), {}); }, {folder.file("m.csv"), "No such file"});
}

}  // namespace
}  // namespace halotap::io
