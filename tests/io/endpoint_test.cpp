#include "halotap/io/endpoint.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

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

TEST(Endpoint, RefusesUnknownSchemesByListingWhatThereIs) {
  expect_error<ConfigError>([] { open_source("xyz://a", {}); }, {"xyz://a", "'xyz'", "source", "npy", "csv", "synth"});
  expect_error<ConfigError>([] { open_sink("xyz://a", {}); }, {"xyz://a", "'xyz'", "sink", "npy", "csv", "jsonl"});
  expect_error<ConfigError>([] { open_source("a.jsonl", {}); }, {"a.jsonl", "'jsonl'", "source"});
  expect_error<ConfigError>([] { open_sink("synth://sine", {}); }, {"synth://sine", "'synth'", "sink"});
}

TEST(Endpoint, ListsItsSchemes) {
  const Names sources = source_schemes();
  const Names sinks = sink_schemes();
  for (const std::string scheme : {"npy", "csv", "synth"}) {
    EXPECT_EQ(std::count(sources.begin(), sources.end(), scheme), 1) << scheme;
  }
  for (const std::string scheme : {"npy", "csv", "jsonl"}) {
    EXPECT_EQ(std::count(sinks.begin(), sinks.end(), scheme), 1) << scheme;
  }
}

TEST(Endpoint, RefusesAddressesWithoutAPath) {
  expect_error<ConfigError>([] { open_source("npy://", {}); }, {"npy://", "expected a path"});
  expect_error<ConfigError>([] { open_sink("csv://?delimiter=;", {}); }, {"csv://", "expected a path"});
}

TEST(Endpoint, RefusesUnknownOptions) {
  const ScratchFolder folder;
  const std::string path = folder.write("x.csv", "1,2\n");
  expect_error<ConfigError>([&] { open_source(path + "?chanels=0", {}); }, {path, "'chanels'", "channels"});
  SinkSpec spec;
  spec.channels = 1;
  expect_error<ConfigError>([&] { open_sink(folder.file("y.csv?header=true"), spec); }, {"'header'", "delimiter"});
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(Endpoint, RefusesAnotherChannelCountNamingBoth) {
  const ScratchFolder folder;
  const std::string path = folder.write("x.csv", "1,2\n");
  expect_error<DataError>([&] { open_source(path, {3, {}, 0}); }, {path, "expected 3", "got 2", "?channels="});
  EXPECT_EQ(open_source(path, {2, {}, 0})->info().channels, 2);
  EXPECT_EQ(open_source(path, {})->info().channels, 2);
}

TEST(Endpoint, ChoosesChannelsByNameAndNumber) {
  const ScratchFolder folder;
  const std::string path = folder.write("x.csv", "a,b,1\n1,2,3\n4,5,6\n7,8,9\n");
  const auto chosen = [&](const std::string& list, bool header = true) {
    return open_source(path + "?channels=" + list + (header ? "&header=true" : ""), {});
  };
  EXPECT_EQ(read_all(*chosen("b,0"), 2), (std::vector<float>{2, 1, 5, 4, 8, 7}));
  EXPECT_EQ(read_all<double>(*chosen("b,0"), 2), (std::vector<double>{2, 1, 5, 4, 8, 7}));
  EXPECT_EQ(chosen("b,0")->info().channel_names, (Names{"b", "a"}));
  EXPECT_EQ(read_all(*chosen("1")), (std::vector<float>{3, 6, 9})) << "a name before a number";
  EXPECT_EQ(read_all(*chosen("0,0")), (std::vector<float>{1, 1, 4, 4, 7, 7}));
  for (const std::string item : {"3", "-1", "c", "0x0", "1.0"}) {
    expect_error<ConfigError>([&] { chosen(item); }, {path, "0 to 2", "a, b, 1", "'" + item + "'"});
  }
}

TEST(Endpoint, HoldsAChoiceToTheModelsCount) {
  const ScratchFolder folder;
  const std::string path = folder.write("x.csv", "1,2,3\n");
  EXPECT_EQ(read_all(*open_source(path + "?channels=2,0", {2, {"u", "v"}, 0})), (std::vector<float>{3, 1}));
  expect_error<DataError>([&] { open_source(path + "?channels=0", {2, {}, 0}); }, {"expected 2", "got 1"});
}

TEST(Endpoint, PutsNamedChannelsInTheModelsOrder) {
  const ScratchFolder folder;
  const std::string path = folder.write("x.csv", "b,c,a\n2,3,1\n");
  const auto source = open_source(path, {3, {"a", "b", "c"}, 0});
  EXPECT_EQ(source->info().channel_names, (Names{"a", "b", "c"}));
  EXPECT_EQ(read_all(*source), (std::vector<float>{1, 2, 3}));
}

TEST(Endpoint, RefusesOtherNamesNamingWhichAreMissingAndWhichAreMore) {
  const ScratchFolder folder;
  const std::string path = folder.write("x.csv", "a,x,c\n1,2,3\n");
  expect_error<DataError>(
      [&] {
        open_source(path, {3, {"a", "b", "c"}, 0});
      },
      {path, "expected the model's channels a, b, c", "missing: b", "not the model's: x"});
  expect_error<DataError>([&] { open_source(path, {2, {"a", "c"}, 0}); }, {"not the model's: x"});
  EXPECT_EQ(read_all(*open_source(path + "?channels=a,x,c", {3, {"a", "b", "c"}, 0})), (std::vector<float>{1, 2, 3}));
}

TEST(Endpoint, LeavesFilesWithoutNamesInTheirOrder) {
  const ScratchFolder folder;
  const std::string path = folder.write("x.csv", "1,2\n");
  EXPECT_EQ(read_all(*open_source(path, {2, {"a", "b"}, 0})), (std::vector<float>{1, 2}));
}

TEST(Endpoint, RefusesAnotherRateNamingBoth) {
  const ScratchFolder folder;
  const std::string path = folder.write("x.csv", "1\n2\n");
  expect_error<DataError>(
      [&] {
        open_source(path + "?rate=44100", {1, {}, 16000.5});
      },
      {path, "expected 16000.5 Hz", "got 44100 Hz", "?resample=true"});
  EXPECT_EQ(open_source(path + "?rate=16000", {1, {}, 16000})->info().rate_hz, 16000);
  EXPECT_EQ(open_source(path, {1, {}, 16000})->info().rate_hz, 16000);
  EXPECT_EQ(open_source(path + "?resample=true", {1, {}, 16000})->info().rate_hz, 16000);
  expect_error<ConfigError>([&] { open_source(path + "?resample=true", {}); }, {path, "no rate"});
}

TEST(Endpoint, GivesAnyFileNameAnAddress) {
  const ScratchFolder folder;
  const std::string path = folder.file("100 % sure?.x=1&y");
  const std::unique_ptr<Sink> sink =
      open_sink(file_address("npy", path), {1, 2, 100, -1, {}, Arrangement::kFramesChannels});
  sink->finish();
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(Endpoint, KnowsStandardOutputInEverySpelling) {
  EXPECT_TRUE(is_standard_output("jsonl://-"));
  EXPECT_TRUE(is_standard_output("csv://-?delimiter=;"));
  EXPECT_FALSE(is_standard_output("csv://./-"));
  EXPECT_FALSE(is_standard_output("x.npy"));
}

TEST(RefuseOverwriting, SeesTheSameFileThroughEverySpelling) {
  const ScratchFolder folder;
  const std::string path = folder.write("x.npy", "");
  std::filesystem::create_symlink(path, folder.file("soft.npy"));
  std::filesystem::create_hard_link(path, folder.file("hard.npy"));
  std::filesystem::create_directory(folder.file("d"));
  for (const std::string& output :
       {path, "npy://" + path, "csv://" + path, folder.file("./x.npy"), folder.file("d/../x.npy"),
        folder.file("soft.npy"), folder.file("hard.npy"), std::filesystem::relative(path).string()}) {
    expect_error<ConfigError>(
        [&] {
          refuse_overwriting({"synth://sine", path}, {output});
        },
        {output + ": ", "input " + path});
    expect_error<ConfigError>([&] { refuse_overwriting({}, {path, output}); }, {output + ": ", "output " + path});
  }
}

TEST(RefuseOverwriting, SeesOutputsThatAreNotThereYet) {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder.file("d"));
  std::filesystem::create_symlink("d", folder.file("link"));
  expect_error<ConfigError>(
      [&] {
        refuse_overwriting({}, {folder.file("d/y.csv"), folder.file("link/y.csv")});
      },
      {folder.file("link/y.csv"), folder.file("d/y.csv")});
  expect_error<ConfigError>(
      [&] {
        refuse_overwriting({}, {folder.file("none/../y.csv"), folder.file("y.csv")});
      },
      {folder.file("y.csv")});
}

TEST(RefuseOverwriting, GuardsFilesThatAreNoEndpoints) {
  const ScratchFolder folder;
  const std::string model = folder.write("model.yaml", "");
  expect_error<ConfigError>([&] { refuse_overwriting({model}, {"npy://" + model}); }, {"npy://" + model, model});
}

TEST(RefuseOverwriting, LeavesAPathThatCannotBeResolvedToWhoeverOpensIt) {
  refuse_overwriting({""}, {"y.npy"});

  const ScratchFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::create_directory(folder.file("removed"));
  std::filesystem::current_path(folder.file("removed"));
  std::filesystem::remove(folder.file("removed"));
  refuse_overwriting({"x.npy"}, {"y.npy"});
  expect_error<ConfigError>([] { refuse_overwriting({"x.npy"}, {"./x.npy"}); }, {"./x.npy", "input x.npy"});
  std::filesystem::current_path(before);
}

TEST(RefuseOverwriting, GuardsEveryFileOfARecording) {
  const ScratchFolder folder;
  const std::string recording = folder.file("s.wav");
  expect_error<ConfigError>([&] { refuse_overwriting({}, {recording}, {recording}); }, {recording, "same file"});
  expect_error<ConfigError>([&] { refuse_overwriting({recording}, {}, {recording}); }, {recording, "same file"});
  for (const char* name : {"s.2.wav", "s.13.wav"}) {
    const std::string other = "wav://" + folder.file(name);
    expect_error<ConfigError>([&] { refuse_overwriting({}, {other}, {recording}); }, {other + ": ", recording});
    expect_error<ConfigError>([&] { refuse_overwriting({other}, {}, {recording}); }, {other + ": ", recording});
  }
  refuse_overwriting({folder.file("s.a.wav"), folder.file("2.wav")}, {folder.file("s.2.npy"), folder.file("s..wav")},
                     {recording});
}

TEST(RefuseOverwriting, GuardsTwoRecordingsFromEachOther) {
  const ScratchFolder folder;
  const std::string input = folder.file("s.wav");
  const std::string numbered = folder.file("s.2.wav");
  expect_error<ConfigError>([&] { refuse_overwriting({}, {}, {input, input}); }, {input, "same file"});
  expect_error<ConfigError>([&] { refuse_overwriting({}, {}, {input, numbered}); }, {numbered, input});
  expect_error<ConfigError>([&] { refuse_overwriting({}, {}, {numbered, input}); }, {numbered, input});
  refuse_overwriting({}, {}, {input, folder.file("t.wav")});
}

TEST(RefuseOverwriting, LetsDifferentFilesAndDevicesPass) {
  const ScratchFolder folder;
  const std::string path = folder.write("x.npy", "");
  const std::string other = folder.write("y.npy", "");
  refuse_overwriting({path, "synth://sine", "csv://-"}, {other, folder.file("z.npy"), "jsonl://-"});
  refuse_overwriting({"csv:///dev/null"}, {"npy:///dev/null", "csv:///dev/null"});
  expect_error<ConfigError>([] { refuse_overwriting({}, {"csv://-", "jsonl://-"}); }, {"jsonl://-", "csv://-"});
}

}  // namespace
}  // namespace halotap::io
