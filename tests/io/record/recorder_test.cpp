#include "halotap/io/recorder.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <random>
#include <utility>

#include "expect_error.hpp"
#include "halotap/io/endpoint.hpp"
#include "halotap/io/session.hpp"
#include "halotap/pipeline/built_in_stages.hpp"
#include "halotap/pipeline/errors.hpp"
#include "live/fake_device.hpp"
#include "live/scripted_source.hpp"
#include "read_all.hpp"
#include "scratch_folder.hpp"
#include "session/session_parts.hpp"

namespace halotap::io {
namespace {

using pipeline::ConfigError;
using pipeline::DataError;
using test::ScratchFolder;

SourceInfo sound(std::int64_t channels, double rate_hz = 8000) {
  SourceInfo info;
  info.channels = channels;
  info.rate_hz = rate_hz;
  return info;
}

std::vector<float> counted(std::int64_t first, std::int64_t count) {
  std::vector<float> result(static_cast<std::size_t>(count));
  std::iota(result.begin(), result.end(), static_cast<float>(first));
  return result;
}

TEST(Recorder, KeepsTheFramesAsTheyAre) {
  const ScratchFolder folder;
  const std::string path = folder.file("a.wav");
  Recorder recorder({path, {}}, sound(2), {});
  recorder.begin();
  recorder.begin_next();  // nothing came before: no file ends
  recorder.push_input(counted(1, 20).data(), 10);
  recorder.push_input(counted(21, 200).data(), 100);
  const RecorderCounters counters = recorder.finish().input;
  EXPECT_EQ(counters.frames_in, 110);
  EXPECT_EQ(counters.frames_written, 110);
  EXPECT_EQ(counters.frames_dropped, 0);
  EXPECT_EQ(counters.files, std::vector<std::string>{path});
  const auto source = open_source(path, {});
  EXPECT_EQ(source->info().rate_hz, 8000);
  EXPECT_EQ(read_all(*source), counted(1, 220));
}

TEST(Recorder, BeginsAFileBehindEveryGap) {
  const ScratchFolder folder;
  Recorder recorder({folder.file("a.wav"), {}}, sound(1), {});
  recorder.begin();
  recorder.push_input(counted(1, 5).data(), 5);
  recorder.begin_next();
  recorder.begin_next();
  recorder.push_input(counted(11, 7).data(), 7);
  recorder.begin_next();
  recorder.push_input(counted(21, 1).data(), 1);
  recorder.begin_next();  // nothing comes any more
  const RecorderCounters counters = recorder.finish().input;
  const std::vector<std::string> files{folder.file("a.wav"), folder.file("a.2.wav"), folder.file("a.3.wav")};
  EXPECT_EQ(counters.files, files);
  EXPECT_EQ(read_all(*open_source(files[0], {})), counted(1, 5));
  EXPECT_EQ(read_all(*open_source(files[1], {})), counted(11, 7));
  EXPECT_EQ(read_all(*open_source(files[2], {})), counted(21, 1));
}

TEST(Recorder, DropsAndCountsWhatFindsNoRoom) {
  const ScratchFolder folder;
  Recorder recorder({folder.file("a.wav"), {}}, sound(1), {});
  recorder.begin();
  const std::vector<float> minute(60 * 8000, 1.0F);
  recorder.push_input(minute.data(), 60 * 8000);  // the ring holds two seconds
  ASSERT_TRUE(comes_true([&] { return std::filesystem::file_size(folder.file("a.wav")) > 4 * 2 * 8000; }));
  recorder.push_input(minute.data(), 10);
  const RecorderCounters counters = recorder.finish().input;
  EXPECT_EQ(counters.frames_in, 60 * 8000 + 10);
  EXPECT_EQ(counters.frames_in, counters.frames_written + counters.frames_dropped);
  EXPECT_EQ(counters.frames_written, 2 * 8000 + 1 + 10);
  EXPECT_EQ(counters.files.size(), 2U) << "behind what is missing a new file begins";
}

TEST(Recorder, KeepsTheOutputBesideTheInputAtItsOwnRate) {
  const ScratchFolder folder;
  const std::string path = folder.file("out.wav");
  Recorder recorder({folder.file("in.wav"), path}, sound(1, 1000), {.channels = 3, .rate_hz = 100});
  recorder.begin();
  recorder.push_input(counted(1, 20).data(), 20);
  recorder.push_output(counted(1, 6).data(), 2);
  const RecorderReport report = recorder.finish();
  EXPECT_EQ(report.input.frames_written, 20);
  EXPECT_EQ(report.output.frames_written, 2);
  EXPECT_EQ(report.output.files, std::vector<std::string>{path});
  EXPECT_EQ(open_source(folder.file("in.wav"), {})->info().rate_hz, 1000);
  const auto output = open_source(path, {});
  EXPECT_EQ(output->info().rate_hz, 100);
  EXPECT_EQ(output->info().channels, 3);
  EXPECT_EQ(read_all(*output), counted(1, 6));
}

TEST(Recorder, KeepsTheOutputAlone) {
  const ScratchFolder folder;
  Recorder recorder({{}, folder.file("out.wav")}, sound(1), {.channels = 1, .rate_hz = 8000});
  recorder.begin();
  recorder.push_input(counted(1, 20).data(), 20);
  recorder.push_output(counted(1, 6).data(), 6);
  const RecorderReport report = recorder.finish();
  EXPECT_EQ(report.input.files.size(), 0U);
  EXPECT_EQ(read_all(*open_source(folder.file("out.wav"), {})), counted(1, 6));
}

// Files of the same number belong together, though nothing came out of what went into one of them.
TEST(Recorder, NumbersTheFilesOfInputAndOutputAlike) {
  const ScratchFolder folder;
  Recorder recorder({folder.file("in.wav"), folder.file("out.wav")}, sound(1), {.channels = 1, .rate_hz = 800});
  recorder.begin();
  recorder.begin_next();  // nothing went in: no file ends
  recorder.push_input(counted(1, 10).data(), 10);
  recorder.push_output(counted(1, 1).data(), 1);
  recorder.begin_next();
  recorder.push_input(counted(11, 3).data(), 3);
  recorder.begin_next();
  recorder.push_input(counted(21, 20).data(), 20);
  recorder.push_output(counted(2, 2).data(), 2);
  const RecorderReport report = recorder.finish();
  const std::vector<std::string> inputs{folder.file("in.wav"), folder.file("in.2.wav"), folder.file("in.3.wav")};
  const std::vector<std::string> outputs{folder.file("out.wav"), folder.file("out.3.wav")};
  EXPECT_EQ(report.input.files, inputs);
  EXPECT_EQ(report.output.files, outputs);
  EXPECT_EQ(read_all(*open_source(outputs[1], {})), counted(2, 2));
}

// A killed program leaves a file that a strict reader takes.
TEST(Recorder, LeavesWhatItWroteWhenTheProgramIsKilled) {
  const ScratchFolder folder;
  const std::string path = folder.file("a.wav");
  const pid_t child = fork();
  if (child == 0) {
    Recorder recorder({path, {}}, sound(1), {});
    recorder.begin();
    recorder.push_input(counted(1, 5000).data(), 5000);
    pause();
    _exit(0);
  }
  ASSERT_GT(child, 0);
  std::int64_t frames = 0;
  EXPECT_TRUE(comes_true([&] {
    try {
      frames = open_source(path, {})->info().frames;
    } catch (const DataError&) {
      return false;  // not there yet
    }
    return frames == 5000;
  }));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(read_all(*open_source(path, {})), counted(1, 5000));
}

// A disk that takes no file beyond so many bytes, while it lives.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : on_excess_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, on_excess_);
  }

 private:
  sighandler_t on_excess_;
  rlimit before_{};
};

TEST(Recorder, SaysAtTheEndThatTheDiskFailed) {
  const ScratchFolder folder;
  const FullDisk disk(2048);
  Recorder recorder({folder.file("a.wav"), {}}, sound(1), {});
  recorder.begin();
  recorder.push_input(counted(1, 1000).data(), 1000);
  expect_error<DataError>([&] { recorder.finish(); }, {"a.wav", "cannot be written"});
}

// Keeps what it is given, however many sessions give it.
class KeepingSink final : public Sink {
 public:
  KeepingSink(std::vector<float>& kept, std::int64_t channels) : kept_(kept), channels_(channels) {}
  void write(const float* samples, std::int64_t frames) override {
    kept_.insert(kept_.end(), samples, samples + frames * channels_);
  }
  void finish() override {}

 private:
  std::vector<float>& kept_;
  std::int64_t channels_;
};

std::vector<float> cochlea_of(Source& source, std::int64_t chunk_frames, const SessionSpec& spec,
                              SessionReport* report = nullptr, const pipeline::Clock* clock = nullptr) {
  const pipeline::Model model =
      pipeline::load_model(std::filesystem::path(HALOTAP_SOURCE_DIR) / "configs" / "cochlea" / "model.yaml");
  pipeline::PipelineSpec pipeline_spec;
  pipeline_spec.backend = pipeline::Backend::kCpu;
  pipeline_spec.chunks.max_frames = chunk_frames;
  pipeline_spec.clock = clock;
  pipeline::Pipeline pipeline(model, pipeline_spec);
  std::vector<float> bands;
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(std::make_unique<KeepingSink>(bands, model.stack->out_channels()));
  SessionReport result = run_session(source, pipeline, sinks, spec);
  if (report != nullptr) *report = std::move(result);
  return bands;
}

// Two things went wrong; neither hides the other.
TEST(Recorder, FailsBesideADeviceThatIsLost) {
  const ScratchFolder folder;
  const FullDisk disk(2048);
  ScriptedSource live(
      {{.frames = counted(1, 1000)}, {.then = [] { throw pipeline::DeviceError("the microphone was pulled out"); }}},
      48000);
  Recorder recorder({folder.file("a.wav"), {}}, live.info(), {});
  SessionSpec spec;
  spec.recorder = &recorder;
  expect_error<pipeline::DeviceError>([&] { cochlea_of(live, 240, spec); },
                                      {"the microphone was pulled out", "a.wav", "cannot be written"});
}

// A live run of sound with two gaps, and with invalid samples where asked for.
std::vector<LiveEvent> sound_with_gaps(bool invalid) {
  std::vector<LiveEvent> events;
  std::mt19937 random(9);
  std::uniform_real_distribution<float> sample(-1, 1);
  for (const std::int64_t block : {480, 17, 1, 960, 33, 2000}) {
    std::vector<float> sound_block(static_cast<std::size_t>(block));
    for (float& value : sound_block) value = sample(random);
    if (invalid) sound_block[sound_block.size() / 2] = 3e38F;
    events.push_back({.frames = std::move(sound_block)});
    events.push_back({});
    if (block == 1) events.push_back({.gap = {.frames_lost = 100}});
    if (block == 960) events.push_back({.gap = {.frames_dropped = 5000}});
  }
  return events;
}

TEST(Recorder, ReplayedGivesTheBitsOfTheLiveRunUnderEveryPolicy) {
  for (const pipeline::OnGap on_gap : {pipeline::OnGap::kReset, pipeline::OnGap::kMark, pipeline::OnGap::kFill}) {
    for (const pipeline::OnInvalid on_invalid :
         {pipeline::OnInvalid::kPass, pipeline::OnInvalid::kHold, pipeline::OnInvalid::kZero}) {
      const ScratchFolder folder;
      std::atomic<bool> stop{false};
      std::vector<LiveEvent> events = sound_with_gaps(on_invalid != pipeline::OnInvalid::kPass);
      events.push_back({.then = [&] { stop = true; }});
      ScriptedSource live(std::move(events), 48000);
      Recorder recorder({folder.file("a.wav"), {}}, live.info(), {});
      SessionSpec spec;
      spec.recorder = &recorder;
      spec.stop = &stop;
      spec.input = {on_gap, on_invalid};
      spec.max_fill_frames = 1000;  // the first gap is filled, the second is too long
      SessionReport report;
      const std::vector<float> heard = cochlea_of(live, 240, spec, &report);
      EXPECT_EQ(report.frames_in, 3491 + report.frames_filled);
      EXPECT_EQ(report.frames_filled, on_gap == pipeline::OnGap::kFill ? 100 : 0);
      EXPECT_EQ(report.gaps, 2);
      EXPECT_EQ(report.recording.input.files.size(), on_gap == pipeline::OnGap::kReset  ? 3U
                                                     : on_gap == pipeline::OnGap::kMark ? 1U
                                                                                        : 2U);
      EXPECT_EQ(report.recording.input.frames_written, report.frames_in);
      ASSERT_EQ(static_cast<std::int64_t>(heard.size()), 32 * report.frames_in);

      std::vector<float> replayed;
      for (const std::string& file : report.recording.input.files) {
        const std::vector<float> bands = cochlea_of(*open_source(file, {1, {}, 48000}), 64, {});
        replayed.insert(replayed.end(), bands.begin(), bands.end());
      }
      ASSERT_EQ(replayed.size(), heard.size());
      EXPECT_EQ(std::memcmp(replayed.data(), heard.data(), heard.size() * sizeof(float)), 0)
          << pipeline::to_string(on_gap) << " " << pipeline::to_string(on_invalid);
    }
  }
}

// As behind a gap: the session stalls for 300 ms, and what cannot be on time any more is thrown away.
TEST(Recorder, ReplayedGivesTheBitsOfARunThatSkippedFrames) {
  const ScratchFolder folder;
  const test::WoundClock clock;
  ClockedSource live(clock, 48000);
  live.on_read = [&clock, reads = 0]() mutable {
    if (++reads == 20) clock.wind(std::chrono::milliseconds(300));
  };
  Recorder recorder({folder.file("a.wav"), {}}, live.info(), {});
  SessionSpec spec;
  spec.max_frames = 30000;
  spec.recorder = &recorder;
  spec.latency = {.budget_ms = 20, .on_miss = pipeline::OnMiss::kSkipToLatest, .miss_after = 1};
  std::int64_t skipped = 0;
  spec.on_gap = [&skipped](const HandledGap& gap) { skipped += gap.frames_skipped; };
  const std::vector<float> heard = cochlea_of(live, 240, spec, nullptr, &clock);
  EXPECT_GT(skipped, 48 * 270);
  ASSERT_EQ(static_cast<std::int64_t>(heard.size()), 32 * (30000 - skipped));

  std::vector<float> replayed;
  for (const std::string file : {"a.wav", "a.2.wav"}) {
    const std::vector<float> bands = cochlea_of(*open_source(folder.file(file), {1, {}, 48000}), 64, {});
    replayed.insert(replayed.end(), bands.begin(), bands.end());
  }
  EXPECT_FALSE(std::filesystem::exists(folder.file("a.3.wav")));
  ASSERT_EQ(replayed.size(), heard.size());
  EXPECT_EQ(std::memcmp(replayed.data(), heard.data(), heard.size() * sizeof(float)), 0);
}

// Through stages that choose channels and make one frame of four: the output has a rate and channels of its own.
pipeline::PipelineSpec with_stages() {
  pipeline::PipelineSpec spec;
  spec.backend = pipeline::Backend::kCpu;
  pipeline::SelectSpec select;
  select.channels = {"3", "17"};
  pipeline::DecimateSpec decimate;
  decimate.factor = 4;
  spec.stages = {{"select", pipeline::select_stage(select)}, {"decimate", pipeline::decimate_stage(decimate)}};
  return spec;
}

TEST(Recorder, KeepsTheOutputThatAReplayOfTheInputGivesBitForBit) {
  const ScratchFolder folder;
  std::vector<LiveEvent> events;
  std::int64_t frames = 0;
  std::mt19937 random(4);
  std::uniform_real_distribution<float> sample(-1, 1);
  for (const std::int64_t block : {480, 17, 1, 960, 2, 33, 2000}) {
    std::vector<float> sound_block(static_cast<std::size_t>(block));
    for (float& value : sound_block) value = sample(random);
    events.push_back({.frames = std::move(sound_block)});
    if (block <= 2 || block == 960) events.push_back({.gap = {.frames_lost = 100}});
    frames += block;
  }
  const pipeline::Model model =
      pipeline::load_model(std::filesystem::path(HALOTAP_SOURCE_DIR) / "configs" / "cochlea" / "model.yaml");
  ScriptedSource live(std::move(events), 48000);
  pipeline::PipelineSpec pipeline_spec = with_stages();
  pipeline_spec.chunks.max_frames = 240;
  pipeline::Pipeline pipeline(model, pipeline_spec);
  Recorder recorder({folder.file("in.wav"), folder.file("out.wav")}, live.info(), pipeline.output());
  SessionSpec spec;
  spec.max_frames = frames;
  spec.recorder = &recorder;
  const RecorderReport report = run_session(live, pipeline, {}, spec).recording;
  EXPECT_EQ(report.input.files.size(), 4U);
  EXPECT_EQ(report.output.files.size(), 4U);
  EXPECT_GT(report.output.frames_written, 0);

  for (const std::string number : {"", ".2", ".3", ".4"}) {
    const auto source = open_source(folder.file("in" + number + ".wav"), {1, {}, 48000});
    std::vector<float> replayed;
    std::vector<std::unique_ptr<Sink>> sinks;
    sinks.push_back(std::make_unique<KeepingSink>(replayed, 2));
    pipeline::Pipeline again(model, with_stages());
    run_session(*source, again, sinks, {});
    const auto output = open_source(folder.file("out" + number + ".wav"), {});
    EXPECT_EQ(output->info().rate_hz, 12000);
    EXPECT_EQ(output->info().channels, 2);
    const std::vector<float> recorded = read_all(*output);
    ASSERT_EQ(recorded.size(), replayed.size()) << number;
    EXPECT_EQ(std::memcmp(recorded.data(), replayed.data(), recorded.size() * sizeof(float)), 0) << number;
  }
}

// What is refused before a run begins costs no older recording.
TEST(Recorder, TouchesNoFileBeforeTheRun) {
  const ScratchFolder folder;
  const std::string path = folder.file("a.wav");
  { Recorder recorder({path, {}}, sound(1), {}); }
  EXPECT_FALSE(std::filesystem::exists(path));
  ScriptedSource live({{.frames = counted(1, 10)}}, 48000);
  Recorder recorder({path, {}}, live.info(), {});
  SessionSpec spec;
  spec.recorder = &recorder;
  spec.speed = 1.0;  // which a live source refuses
  expect_error<ConfigError>([&] { cochlea_of(live, 240, spec); }, {"speed"});
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Recorder, TouchesNeitherFileUnlessBothCanBeWritten) {
  const ScratchFolder folder;
  ASSERT_EQ(mkfifo(folder.file("pipe.wav").c_str(), 0600), 0);
  std::filesystem::create_directory(folder.file("folder.wav"));
  const pipeline::StageFormat output{1, 1, 1000, {}};
  for (const std::string bad : {"none/a.wav", "pipe.wav", "folder.wav"}) {
    for (const bool input_is_bad : {false, true}) {
      const std::string old = folder.write("old.wav", "older");
      const std::string refused = folder.file(bad);
      Recorder recorder(input_is_bad ? RecorderSpec{refused, old} : RecorderSpec{old, refused}, sound(1), output);
      expect_error<DataError>([&] { recorder.begin(); }, {bad, "cannot be written"});
      EXPECT_EQ(ScratchFolder::content(old), "older");
    }
  }
}

TEST(Recorder, WritesLaterFilesThroughNoLink) {
  const ScratchFolder folder;
  folder.write("other.wav", "other");
  std::filesystem::create_symlink("other.wav", folder.file("a.2.wav"));
  Recorder recorder({folder.file("a.wav"), {}}, sound(1), {});
  recorder.begin();
  const float sample = 0.5F;
  recorder.push_input(&sample, 1);
  recorder.begin_next();
  recorder.push_input(&sample, 1);
  EXPECT_EQ(recorder.finish().input.files.size(), 2u);
  EXPECT_EQ(ScratchFolder::content(folder.file("other.wav")), "other");
  EXPECT_FALSE(std::filesystem::is_symlink(folder.file("a.2.wav")));
}

TEST(Recorder, RefusesWhatAWavFileCannotHold) {
  const ScratchFolder folder;
  expect_error<ConfigError>([&] { Recorder({folder.file("a.flac"), {}}, sound(1), {}); }, {"a.flac", "record", ".wav"});
  expect_error<ConfigError>([&] { Recorder({folder.file("a.wav"), {}}, sound(1, 0.5), {}); }, {"record", "Hz"});
  expect_error<ConfigError>([&] { Recorder({folder.file("a.wav"), {}}, sound(2000), {}); }, {"record", "got 2000"});
  SourceInfo many = sound(1);
  many.streams = 3;
  expect_error<ConfigError>([&] { Recorder({folder.file("a.wav"), {}}, many, {}); }, {"record", "1 stream", "got 3"});
  expect_error<ConfigError>(
      [&] {
        Recorder({{}, folder.file("o.wav")}, sound(1), {.channels = 2000, .rate_hz = 100});
      },
      {"o.wav", "record.output", "1 to 1024 channels", "got 2000"});
  expect_error<ConfigError>(
      [&] {
        Recorder({{}, folder.file("o.wav")}, sound(1), {.channels = 1, .rate_hz = 12.5});
      },
      {"o.wav", "record.output", "whole number of Hz", "got 12.5"});
  expect_error<DataError>(
      [&] {
        Recorder({folder.file("none/a.wav"), {}}, sound(1), {}).begin();
      },
      {"none/a.wav", "cannot be written"});
}

}  // namespace
}  // namespace halotap::io
