// Random entries for hundreds of streams that open and close; every stream is compared, bit for bit, with a run of its
// own through an Engine of one stream. HALOTAP_SOAK_STEPS sets the number of steps, 4000 when not given.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "halotap/pipeline/async_engine.hpp"
#include "pipeline/backends.hpp"
#include "pipeline/test_model.hpp"
#include "wound_clock.hpp"

namespace halotap::pipeline {
namespace {

using std::chrono::microseconds;
using test::backends;
using test::draw;
using test::Random;

constexpr std::int64_t kStreams = 500;
constexpr std::int64_t kChunk = 6;

std::int64_t soak_steps() {
  const char* given = std::getenv("HALOTAP_SOAK_STEPS");
  return given != nullptr ? std::max(1L, std::atol(given)) : 4'000;
}

Model soak_model(std::uint64_t seed) {
  Random random(seed);
  return test::draw_model(random, {.max_layers = 3, .max_channels = 9, .max_kernel_size = 4, .max_dilation = 2});
}

// An entry, what it was asked with and what came of it.
struct Asked {
  EntryKind kind = EntryKind::kChunk;
  std::int64_t frames = 0;
  FillKind fill = FillKind::kZeros;
  std::vector<float> samples;  // planar [in_channels, frames], or the fill's frame
};

struct Given {
  bool fresh = false;
  std::vector<float> output;  // planar
};

// One stream from open to close: its producer writes `asked`, its collector `given`.
struct Tenant {
  StreamId stream;
  std::vector<Asked> asked;
  std::vector<Given> given;
  bool closed = false;     // by the producer
  bool collected = false;  // to the end
};

// Draws and submits an entry. False: the stream is full, and the next try asks for the same.
bool submit(AsyncEngine& engine, Tenant& tenant, Asked& asked, Instant deadline) {
  Status status = Status::kOk;
  switch (asked.kind) {
    case EntryKind::kChunk: {
      FrameView view;
      status = engine.begin_chunk(tenant.stream, asked.frames, view);
      if (status != Status::kOk) break;
      for (std::int64_t c = 0; c < view.channels; ++c) {
        for (std::int64_t t = 0; t < view.frames; ++t) {
          view(c, t) = asked.samples[static_cast<std::size_t>(c * view.frames + t)];
        }
      }
      status = engine.submit(tenant.stream, deadline);
      break;
    }
    case EntryKind::kSkip:
      status = engine.skip(tenant.stream);
      break;
    case EntryKind::kReset:
      status = engine.reset(tenant.stream, {asked.fill, asked.samples.data()});
      break;
    case EntryKind::kFlush:
      status = engine.flush(tenant.stream);
      break;
    case EntryKind::kClose:
      status = engine.close(tenant.stream);
      break;
  }
  if (status == Status::kStreamFull) return false;
  EXPECT_EQ(status, Status::kOk) << to_string(status);
  tenant.closed = asked.kind == EntryKind::kClose;
  tenant.asked.push_back(std::move(asked));
  return true;
}

Asked draw_entry(Random& random, std::int64_t channels) {
  Asked asked;
  const std::int64_t action = draw(random, 0, 39);
  if (action == 0) {
    asked.kind = EntryKind::kClose;
  } else if (action <= 2) {
    asked.kind = EntryKind::kReset;
    asked.fill = static_cast<FillKind>(draw(random, 0, 2));
    asked.samples = test::draw_signal(random, channels);
  } else if (action <= 4) {
    asked.kind = EntryKind::kSkip;
  } else if (action == 5) {
    asked.kind = EntryKind::kFlush;
  } else {
    asked.frames = draw(random, 0, kChunk);
    asked.samples = test::draw_signal(random, channels * asked.frames);
    if (action <= 7 && asked.frames > 0) {
      asked.samples[static_cast<std::size_t>(draw(random, 0, channels * asked.frames - 1))] =
          action == 6 ? std::nanf("") : -INFINITY;
    }
  }
  return asked;
}

// Collects one answer, if it is there, and checks its number; false: it is not.
bool collect(AsyncEngine& engine, Tenant& tenant, Instant deadline) {
  AsyncResult result;
  const Status status = engine.try_collect(tenant.stream, deadline, result);
  EXPECT_EQ(result.sequence, tenant.given.size()) << "an answer is missing or came twice";
  EXPECT_EQ(result.answered, status == Status::kOk);
  if (status == Status::kNotYet) return false;
  EXPECT_EQ(status, Status::kOk) << to_string(status);
  tenant.collected = result.kind == EntryKind::kClose || status != Status::kOk;
  Given given{result.fresh, {}};
  if (result.fresh) {
    for (std::int64_t c = 0; c < result.output.channels; ++c) {
      for (std::int64_t t = 0; t < result.output.frames; ++t) given.output.push_back(result.output(c, t));
    }
  }
  tenant.given.push_back(std::move(given));
  return true;
}

// What the stream gives alone, entry after entry, through Engine.
void expect_the_bits_of_a_run_alone(Engine& alone, const Tenant& tenant) {
  ASSERT_EQ(tenant.given.size(), tenant.asked.size());
  StreamId stream;
  ASSERT_EQ(alone.open(stream), Status::kOk);
  const std::int64_t in = alone.in_channels();
  const std::int64_t out = alone.out_channels();
  const std::int64_t room = std::max(kChunk, alone.lookahead_frames());
  std::vector<float> output(static_cast<std::size_t>(out * room));
  for (std::size_t i = 0; i < tenant.asked.size(); ++i) {
    const Asked& asked = tenant.asked[i];
    std::int64_t frames = 0;
    Status status = Status::kOk;
    if (asked.kind == EntryKind::kChunk) {
      StreamChunk chunk{stream, kernels::planar<const float>(asked.samples.data(), in, asked.frames),
                        kernels::planar(output.data(), out, room), 0, Status::kOk};
      status = alone.process({&chunk, 1});
      frames = chunk.frames_emitted;
    } else if (asked.kind == EntryKind::kReset) {
      status = alone.reset(stream, {asked.fill, asked.samples.data()});
    } else if (asked.kind == EntryKind::kFlush) {
      status = alone.flush(stream, kernels::planar(output.data(), out, room), frames);
    }
    ASSERT_EQ(status, Status::kOk);
    const Given& given = tenant.given[i];
    ASSERT_EQ(given.fresh, frames > 0) << "entry " << i;
    ASSERT_EQ(given.output.size(), static_cast<std::size_t>(out * frames)) << "entry " << i;
    for (std::int64_t c = 0; c < out && frames > 0; ++c) {
      ASSERT_EQ(std::memcmp(&given.output[static_cast<std::size_t>(c * frames)],
                            &output[static_cast<std::size_t>(c * room)], static_cast<std::size_t>(frames) * 4),
                0)
          << "entry " << i << ", channel " << c;
    }
  }
  ASSERT_EQ(alone.close(stream), Status::kOk);
}

// Producers, worker and collectors take turns at random on one thread, under a clock that runs on a little at every
// look.
void soak_in_turns(Backend backend, std::uint64_t seed, std::int64_t in_flight) {
  Random random(seed);
  const Model model = soak_model(seed);
  const std::int64_t channels = model.stack->in_channels();
  const test::WoundClock clock(microseconds(1));
  AsyncEngine engine(model, {.engine = {.backend = backend, .max_streams = kStreams, .max_chunk_frames = kChunk},
                             .in_flight = in_flight,
                             .own_thread = false,
                             .clock = &clock});
  Engine alone;
  alone.prepare(model, {.backend = backend, .max_chunk_frames = kChunk});
  std::vector<std::unique_ptr<Tenant>> tenants;
  std::uint64_t streams = 0;
  std::uint64_t entries = 0;
  const auto collect_from = [&](std::size_t which) {
    Tenant& tenant = *tenants[which];
    while (!tenant.collected && collect(engine, tenant, {})) {
    }
    if (!tenant.collected) return;
    expect_the_bits_of_a_run_alone(alone, tenant);
    entries += tenant.given.size();
    std::swap(tenants[which], tenants.back());
    tenants.pop_back();
  };

  for (std::int64_t step = 0; step < soak_steps() && !testing::Test::HasFailure(); ++step) {
    const std::int64_t turn = draw(random, 0, 19);
    if (turn < 4 || tenants.empty()) {
      auto tenant = std::make_unique<Tenant>();
      const Status status = engine.open(tenant->stream);
      ASSERT_TRUE(status == Status::kOk || status == Status::kNoFreeStream);
      if (status == Status::kOk) {
        tenants.push_back(std::move(tenant));
        ++streams;
      }
      continue;
    }
    const auto which = static_cast<std::size_t>(draw(random, 0, std::ssize(tenants) - 1));
    if (turn < 16) {
      if (tenants[which]->closed) continue;
      Asked asked = draw_entry(random, channels);
      const Instant deadline =
          test::toss(random) ? Instant::max() : clock.now() + microseconds(draw(random, -100, 5'000));
      if (!submit(engine, *tenants[which], asked, deadline)) collect_from(which);
    } else if (turn < 18) {
      static_cast<void>(engine.step());
    } else {
      collect_from(which);
    }
  }
  // Everything is answered in the end, whoever was waited for.
  for (const std::unique_ptr<Tenant>& tenant : tenants) {
    Asked close;
    close.kind = EntryKind::kClose;
    for (int i = 0; i < 10 && !tenant->closed && !submit(engine, *tenant, close, {}); ++i) {
      clock.wind(microseconds(10'000));
      static_cast<void>(engine.step());
      while (!tenant->collected && collect(engine, *tenant, {})) {
      }
    }
  }
  for (int round = 0; round < 4 * in_flight + 4; ++round) {
    clock.wind(microseconds(10'000));
    static_cast<void>(engine.step());
    for (std::size_t which = tenants.size(); which-- > 0;) collect_from(which);
  }
  EXPECT_TRUE(tenants.empty()) << tenants.size() << " streams never ended";
  const AsyncCounters counters = engine.counters();
  EXPECT_EQ(counters.entries_in, entries);
  EXPECT_EQ(counters.entries_out, entries);
  EXPECT_EQ(counters.entries_failed, 0u);
  EXPECT_EQ(engine.engine().counters().streams_open, 0u);
  EXPECT_GT(counters.largest_call, 1u);
  EXPECT_GE(streams, static_cast<std::uint64_t>(std::min(soak_steps() / 10, kStreams)));
  EXPECT_GE(entries, static_cast<std::uint64_t>(soak_steps() / 4));
}

TEST(AsyncSoak, GivesEveryStreamTheBitsOfARunAlone) {
  if (backends().empty()) GTEST_SKIP() << "no backend on this machine";
  for (const Backend backend : backends()) {
    for (const std::uint64_t seed : {1u, 2u}) {
      SCOPED_TRACE(std::string(to_string(backend)) + ", seed " + std::to_string(seed));
      soak_in_turns(backend, seed, static_cast<std::int64_t>(seed));
    }
  }
}

// The same with the engine's own thread, threads that submit, each for its streams, and threads that collect.
void soak_between_threads(Backend backend, std::uint64_t seed) {
  constexpr int kPairs = 2;
  const Model model = soak_model(seed);
  AsyncEngine engine(model, {.engine = {.backend = backend, .max_streams = kStreams, .max_chunk_frames = kChunk},
                             .max_wait = microseconds(500),
                             .margin = microseconds(10)});
  struct Pair {
    std::mutex mutex;  // over opened and done, between its two threads
    std::vector<std::shared_ptr<Tenant>> opened;
    bool done = false;
    std::vector<std::shared_ptr<Tenant>> ended;  // of the collector
  };
  Pair pairs[kPairs];
  // Only a defect makes anybody wait for so long.
  const Instant end = monotonic_clock().now() + std::chrono::seconds(30 + soak_steps() / 1'000);
  const auto in_time = [end] { return monotonic_clock().now() < end; };
  std::mutex opening;
  std::vector<std::thread> threads;
  for (int p = 0; p < kPairs; ++p) {
    Pair& pair = pairs[p];
    threads.emplace_back([&, p] {
      Random random(seed * 100 + static_cast<std::uint64_t>(p));
      std::vector<std::shared_ptr<Tenant>> own;
      const std::int64_t channels = model.stack->in_channels();
      for (std::int64_t step = 0; step < soak_steps() / kPairs; ++step) {
        if (own.empty() || draw(random, 0, 9) == 0) {
          auto tenant = std::make_shared<Tenant>();
          const std::lock_guard one_at_a_time(opening);
          if (engine.open(tenant->stream) == Status::kOk) {
            own.push_back(tenant);
            const std::lock_guard lock(pair.mutex);
            pair.opened.push_back(std::move(tenant));
          }
        }
        if (own.empty()) continue;
        const auto which = static_cast<std::size_t>(draw(random, 0, std::ssize(own) - 1));
        Asked asked = draw_entry(random, channels);
        const Instant deadline = monotonic_clock().now() + microseconds(draw(random, -100, 1'000));
        while (!submit(engine, *own[which], asked, deadline) && in_time()) std::this_thread::yield();
        if (own[which]->closed) own.erase(own.begin() + static_cast<std::ptrdiff_t>(which));
      }
      Asked close;
      close.kind = EntryKind::kClose;
      for (const std::shared_ptr<Tenant>& tenant : own) {
        while (!submit(engine, *tenant, close, {}) && in_time()) std::this_thread::yield();
      }
      const std::lock_guard lock(pair.mutex);
      pair.done = true;
    });
    threads.emplace_back([&] {
      std::vector<std::shared_ptr<Tenant>> open;
      for (bool done = false; (!done || !open.empty()) && in_time();) {
        {
          const std::lock_guard lock(pair.mutex);
          open.insert(open.end(), pair.opened.begin(), pair.opened.end());
          pair.opened.clear();
          done = pair.done;
        }
        for (std::size_t i = open.size(); i-- > 0;) {
          const Instant deadline = open.size() < 3 ? monotonic_clock().now() + microseconds(200) : Instant{};
          while (!open[i]->collected && collect(engine, *open[i], deadline)) {
          }
          if (!open[i]->collected) continue;
          pair.ended.push_back(open[i]);
          open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(in_time()) << "answers or room did not come";
  engine.stop();
  Engine alone;
  alone.prepare(model, {.backend = backend, .max_chunk_frames = kChunk});
  std::uint64_t entries = 0;
  for (const Pair& pair : pairs) {
    for (const std::shared_ptr<Tenant>& tenant : pair.ended) {
      expect_the_bits_of_a_run_alone(alone, *tenant);
      entries += tenant->given.size();
    }
  }
  const AsyncCounters counters = engine.counters();
  EXPECT_GE(entries, static_cast<std::uint64_t>(soak_steps()));
  EXPECT_EQ(counters.entries_in, entries);
  EXPECT_EQ(counters.entries_out, entries);
}

TEST(AsyncSoak, GivesEveryStreamTheBitsOfARunAloneBetweenThreads) {
  if (backends().empty()) GTEST_SKIP() << "no backend on this machine";
  for (const Backend backend : backends()) soak_between_threads(backend, 3);
}

}  // namespace
}  // namespace halotap::pipeline
