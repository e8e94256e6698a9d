#include "backend_contest.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>

#include <atomic>
#include <bitset>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "random_stack.hpp"
#include "scratch_folder.hpp"
#include "wound_clock.hpp"

namespace halotap::pipeline {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using test::ScratchFolder;

const test::WoundClock kClock;

// Takes as long as a test says, by the clock above.
class TimedExecutor final : public kernels::Executor {
 public:
  // Allocates nothing later: room for the calls of any test here.
  TimedExecutor(std::string& order, char name) : order_(order), name_(name) { order_.reserve(std::size_t{1} << 22); }

  void reset(std::int64_t slot, const Fill&) noexcept HALOTAP_NONBLOCKING override {
    fresh.set(static_cast<std::size_t>(slot));
  }
  void process(std::span<kernels::SlotChunk> chunks, std::int64_t) noexcept HALOTAP_NONBLOCKING override {
    order_ += name_;
    ++calls;
    for (const kernels::SlotChunk& chunk : chunks) {
      fresh.reset(static_cast<std::size_t>(chunk.slot));
      frames += chunk.input.frames;
      kClock.wind(time_a_frame * chunk.input.frames);
    }
    kClock.wind(calls % 100 == 0 ? time_now_and_then : time_a_call);
  }
  std::int64_t flush(std::int64_t, FrameView) noexcept HALOTAP_NONBLOCKING override { return 0; }
  std::size_t state_bytes() const noexcept override { return 0; }
  std::string description() const override { return {name_}; }

  nanoseconds time_a_call{0};
  nanoseconds time_now_and_then{0};
  nanoseconds time_a_frame{0};
  std::int64_t calls = 0;
  std::int64_t frames = 0;
  std::bitset<8192> fresh;  // by slot

 private:
  std::string& order_;
  const char name_;
};

struct BackendContest : testing::Test {
  std::shared_ptr<const kernels::Stack> drawn(std::uint64_t seed) {
    test::Random random(seed);
    return test::draw_stack(random, {.max_channels = 4});
  }

  BackendFigures time(const Contest& contest) { return time_backends(cpu, cuda, *stack, contest, kClock); }

  std::string order;
  TimedExecutor cpu{order, 'h'};
  TimedExecutor cuda{order, 'c'};
  std::shared_ptr<const kernels::Stack> stack = drawn(1);
};

TEST_F(BackendContest, TakesTheRareLongCallsOfBothInTurn) {
  cpu.time_a_call = cpu.time_now_and_then = microseconds(70);
  cuda.time_a_call = microseconds(20);
  cuda.time_now_and_then = microseconds(90);
  const BackendFigures figures = time({1, 16});
  EXPECT_EQ(figures.calls, 1000);
  EXPECT_NEAR(static_cast<double>(figures.cpu_p999.count()), 70e3, 70e3 * 0.016);
  EXPECT_NEAR(static_cast<double>(figures.cuda_p999.count()), 90e3, 90e3 * 0.016) << "faster but for now and then";
  EXPECT_FALSE(figures.is_remembered);
  for (std::size_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], i % 2 == 0 ? 'h' : 'c') << i;
  EXPECT_EQ(order.size(), 2U * (1000 + 3)) << "three calls to warm up";
}

TEST_F(BackendContest, EndsWithinAQuarterOfASecond) {
  cpu.time_a_call = cpu.time_now_and_then = milliseconds(6);
  cuda.time_a_call = cuda.time_now_and_then = milliseconds(4);
  const Instant begun = kClock.now();
  const BackendFigures figures = time({1, 16});
  EXPECT_LT(kClock.now() - begun, milliseconds(270));
  EXPECT_GT(figures.calls, 20);
}

TEST_F(BackendContest, CutsOffACpuThatTakesTooLong) {
  cpu.time_a_frame = milliseconds(1);
  cuda.time_a_call = milliseconds(30);
  const Instant begun = kClock.now();
  const BackendFigures figures = time({5000, 4});
  EXPECT_NEAR(static_cast<double>(figures.cpu_p999.count()), 20e9, 20e9 * 0.02);
  EXPECT_NEAR(static_cast<double>(figures.cuda_p999.count()), 30e6, 30e6 * 0.02);
  EXPECT_LT(kClock.now() - begun, milliseconds(400));
  EXPECT_EQ(cuda.frames % 20000, 0) << "the card is always given every stream";
}

TEST_F(BackendContest, GivesTheCpuALongChunkInPiecesAndAnEndlessOneInPart) {
  cpu.time_a_frame = nanoseconds(1);
  cuda.time_a_frame = nanoseconds(2);
  const BackendFigures figures = time({1, std::int64_t{1} << 30});
  EXPECT_NEAR(static_cast<double>(figures.cpu_p999.count()), 1.074e9, 1.074e9 * 0.02);
  EXPECT_NEAR(static_cast<double>(figures.cuda_p999.count()), 2.147e9, 2.147e9 * 0.02);
  EXPECT_GT(cpu.calls, 1000 * cuda.calls);
}

// What the system would say, more each time.
nanoseconds told{0};
nanoseconds told_more{0};
nanoseconds kept_waiting() { return told += told_more; }

TEST_F(BackendContest, TellsWhetherOthersHadTheProcessor) {
  cpu.time_a_call = cpu.time_now_and_then = cuda.time_a_call = cuda.time_now_and_then = microseconds(50);
  // 1003 calls of both take 100.3 ms.
  told_more = microseconds(1003);
  EXPECT_FALSE(time_backends(cpu, cuda, *stack, {1, 16}, kClock, kept_waiting).is_disturbed);
  told_more = microseconds(1004);
  EXPECT_TRUE(time_backends(cpu, cuda, *stack, {1, 16}, kClock, kept_waiting).is_disturbed);
}

TEST(TimeKeptWaiting, GrowsWhileAnotherHasTheProcessor) {
  if (!std::filesystem::exists("/proc/thread-self/schedstat")) GTEST_SKIP() << "this system does not tell";
  // Both on the processor that this thread has now.
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  const auto stay = [&one] { return pthread_setaffinity_np(pthread_self(), sizeof one, &one); };
  std::atomic<bool> is_over{false};
  std::thread other([&] {
    stay();
    while (!is_over.load()) continue;
  });
  nanoseconds waited{0};
  std::thread waiting([&] {
    EXPECT_EQ(stay(), 0);
    const nanoseconds before = time_kept_waiting();
    const Instant end = monotonic_clock().now() + seconds(10);
    while (waited == nanoseconds(0) && monotonic_clock().now() < end) waited = time_kept_waiting() - before;
  });
  waiting.join();
  is_over.store(true);
  other.join();
  EXPECT_GT(waited, nanoseconds(0));
}

TEST_F(BackendContest, LeavesEverySlotAsFresh) {
  cpu.time_a_call = cuda.time_a_call = cpu.time_now_and_then = cuda.time_now_and_then = milliseconds(50);
  time({7, 16});
  EXPECT_EQ(cpu.fresh.count(), 7U);
  EXPECT_EQ(cuda.fresh.count(), 7U);
}

TEST_F(BackendContest, HasAKeyOfItsOwnForWhateverTheFiguresDependOn) {
  const std::string key = contest_key(*stack, "cpu", "card", {1, 16});
  EXPECT_EQ(contest_key(*drawn(1), "cpu", "card", {1, 16}), key);
  std::set<std::string> keys{key};
  keys.insert(contest_key(*stack, "cpu (SSE4)", "card", {1, 16}));
  keys.insert(contest_key(*stack, "cpu", "another card", {1, 16}));
  keys.insert(contest_key(*stack, "cpu", "card", {2, 16}));
  keys.insert(contest_key(*stack, "cpu", "card", {1, 17}));
  keys.insert(contest_key(*drawn(2), "cpu", "card", {1, 16}));
  std::vector<kernels::Layer> layers = stack->layers();
  layers.back().weights.pw_weight.back() += 1e-9;
  keys.insert(contest_key(kernels::Stack(layers), "cpu", "card", {1, 16}));
  EXPECT_EQ(keys.size(), 7U);
}

// The environment as it was, at the end.
class Environment {
 public:
  Environment() {
    for (const char* name : {"XDG_CACHE_HOME", "HOME", "HALOTAP_BACKEND_CACHE"}) {
      const char* value = std::getenv(name);
      before_.emplace_back(name, value != nullptr ? std::optional<std::string>(value) : std::nullopt);
      unsetenv(name);
    }
  }
  ~Environment() {
    for (const auto& [name, value] : before_) {
      unsetenv(name);
      if (value) setenv(name, value->c_str(), 1);
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
};

TEST(BackendFiguresFile, LiesWhereCachesDo) {
  const Environment environment;
  EXPECT_EQ(figures_file("key"), std::nullopt) << "no home";
  setenv("HOME", "/home/somebody", 1);
  const std::string file = figures_file("key").value().string();
  EXPECT_EQ(file.find("/home/somebody/.cache/halotap/backend-"), 0U) << file;
  EXPECT_NE(figures_file("another key").value(), file);
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(figures_file("key").value(), file) << "the convention has it ignored";
  setenv("XDG_CACHE_HOME", "/var/cache/mine", 1);
  EXPECT_EQ(figures_file("key").value().parent_path(), "/var/cache/mine/halotap");
  setenv("HALOTAP_BACKEND_CACHE", "off", 1);
  EXPECT_EQ(figures_file("key"), std::nullopt);
  setenv("HALOTAP_BACKEND_CACHE", "of", 1);
  EXPECT_THROW(static_cast<void>(figures_file("key")), std::invalid_argument);
}

const std::string kKey = "halotap-backend/1\nmodel 1\n";
const BackendFigures kFigures{microseconds(302), microseconds(31), 812};

TEST(BackendFiguresFile, IsReadAsItWasWritten) {
  const ScratchFolder folder;
  const std::filesystem::path file = folder.path() / "a" / "b" / "figures.txt";
  EXPECT_FALSE(load_figures(file, kKey));
  for (int i = 0; i < 2; ++i) {  // the second time in the place of the first
    store_figures(file, kKey, kFigures);
    const std::optional<BackendFigures> read = load_figures(file, kKey);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->cpu_p999, kFigures.cpu_p999);
    EXPECT_EQ(read->cuda_p999, kFigures.cuda_p999);
    EXPECT_EQ(read->calls, kFigures.calls);
    EXPECT_TRUE(read->is_remembered);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(file.parent_path()), {}), 1) << "nothing is left over";
  }
  EXPECT_FALSE(load_figures(file, "halotap-backend/1\nmodel 2\n"));
}

TEST(BackendFiguresFile, CountsForNothingWhenItIsNotWhole) {
  const ScratchFolder folder;
  const std::filesystem::path file = folder.path() / "figures.txt";
  store_figures(file, kKey, kFigures);
  const std::string whole = ScratchFolder::content(file);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    folder.write("figures.txt", whole.substr(0, length));
    EXPECT_FALSE(load_figures(file, kKey)) << length;
  }
  for (const char* wrong :
       {"cpu_p999_ns 0\ncuda_p999_ns 1\ncalls 1\n", "cpu_p999_ns -5\ncuda_p999_ns 1\ncalls 1\n",
        "cpu_p999_ns 5 \ncuda_p999_ns 1\ncalls 1\n", "cuda_p999_ns 1\ncpu_p999_ns 5\ncalls 1\n",
        "cpu_p999_ns 99999999999999999999\ncuda_p999_ns 1\ncalls 1\n", "cpu_p999_ns 5\ncuda_p999_ns 1\ncalls 1\n\n"}) {
    folder.write("figures.txt", kKey + wrong);
    EXPECT_FALSE(load_figures(file, kKey)) << wrong;
  }
}

TEST(BackendFiguresFile, CountsForNothingWhenItIsNoFileOrHasNoEnd) {
  const ScratchFolder folder;
  const std::filesystem::path pipe = folder.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_FALSE(load_figures(pipe, kKey)) << "who opened it would wait for a writer";
  EXPECT_FALSE(load_figures("/dev/zero", kKey));
  store_figures(folder.path() / "long", kKey, kFigures);
  std::filesystem::resize_file(folder.path() / "long", std::uintmax_t{1} << 40);
  EXPECT_FALSE(load_figures(folder.path() / "long", kKey));
}

TEST(BackendFiguresFile, ThatCannotBeWrittenIsNoError) {
  const ScratchFolder folder;
  folder.write("file", "");
  store_figures(folder.path() / "file" / "figures.txt", kKey, kFigures);
  std::filesystem::create_directory(folder.path() / "figures.txt");
  store_figures(folder.path() / "figures.txt", kKey, kFigures);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2) << "nothing is left over";
}

TEST(BackendFigures, AreTimedOnceAndThenRemembered) {
  const Environment environment;
  const ScratchFolder folder;
  setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
  int timed = 0;
  const auto time = [&] {
    ++timed;
    return kFigures;
  };
  const std::string key = kKey + "remembered by the process\n";
  EXPECT_FALSE(find_figures(key, time).is_remembered);
  EXPECT_TRUE(find_figures(key, time).is_remembered);
  EXPECT_EQ(timed, 1);
  EXPECT_TRUE(load_figures(figures_file(key).value(), key));

  const std::string other = kKey + "remembered by a file\n";
  store_figures(figures_file(other).value(), other, {microseconds(5), microseconds(6), 7});
  EXPECT_EQ(find_figures(other, time).cuda_p999, microseconds(6));
  EXPECT_EQ(timed, 1);

  const std::string spoilt = kKey + "remembered wrongly\n";
  store_figures(figures_file(spoilt).value(), key, kFigures);
  EXPECT_FALSE(find_figures(spoilt, time).is_remembered);
  EXPECT_EQ(timed, 2);
  EXPECT_TRUE(load_figures(figures_file(spoilt).value(), spoilt)) << "it is put right";

  const std::string failed = kKey + "failed\n";
  const auto fail = []() -> BackendFigures { throw kernels::BackendUnavailable("it failed"); };
  EXPECT_THROW(find_figures(failed, fail), kernels::BackendUnavailable);
  EXPECT_FALSE(find_figures(failed, time).is_remembered) << "nothing was";

  const std::string disturbed = kKey + "disturbed\n";
  const auto time_disturbed = [] { return BackendFigures{microseconds(5), microseconds(6), 7, false, true}; };
  EXPECT_FALSE(find_figures(disturbed, time_disturbed).is_remembered);
  EXPECT_FALSE(load_figures(figures_file(disturbed).value(), disturbed)) << "the next process times anew";
  EXPECT_TRUE(find_figures(disturbed, time_disturbed).is_remembered) << "one process does not change its mind";

  setenv("HALOTAP_BACKEND_CACHE", "off", 1);
  const std::string unkept = kKey + "not kept\n";
  EXPECT_FALSE(find_figures(unkept, time).is_remembered);
  EXPECT_TRUE(find_figures(unkept, time).is_remembered) << "one process does not change its mind";
}

}  // namespace
}  // namespace halotap::pipeline
