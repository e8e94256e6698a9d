#include "chosen_executor.hpp"

#include <chrono>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "backend_contest.hpp"
#include "halotap/pipeline/clock.hpp"

namespace halotap::pipeline {
namespace {

std::int64_t now_ns() noexcept { return std::chrono::nanoseconds(monotonic_clock().now().time_since_epoch()).count(); }

kernels::Pause pause_of(Wait wait) {
  switch (wait) {
    case Wait::kYield:
      return []() noexcept { std::this_thread::yield(); };
    case Wait::kBlock:
      return []() noexcept { std::this_thread::sleep_for(std::chrono::microseconds(50)); };
    case Wait::kSpin:
      break;
  }
  return nullptr;
}

// What choose_executor does.
class Maker {
 public:
  Maker(std::shared_ptr<const kernels::Stack> stack, const EngineSpec& spec)
      : stack_(std::move(stack)),
        spec_(spec),
        executor_spec_{.max_streams = spec.max_streams,
                       .max_chunk_frames = spec.max_chunk_frames,
                       .max_workers = spec.worker_threads + 1,
                       .precision = spec.precision,
                       .now_ns = now_ns,
                       .pause = pause_of(spec.cuda.wait),
                       .cuda_invocation = spec.cuda.invocation,
                       .resident_clusters = spec.cuda.resident_clusters,
                       .cuda_devices = spec.cuda_devices} {}

  ChosenExecutor make() const {
    kernels::check_injected_failure();
    if (spec_.backend == Backend::kCpu) return on_cpu(make_cpu(), "asked for");
    if (spec_.backend == Backend::kCuda) return on_cuda(make_cuda(), nullptr, "asked for");
    if (spec_.worker_threads > 0) return on_cpu(make_cpu(), "only the cpu has worker threads");
    return automatically();
  }

 private:
  std::unique_ptr<kernels::Executor> make_cpu() const { return kernels::make_cpu_executor(stack_, executor_spec_); }
  std::unique_ptr<kernels::Executor> make_cuda() const { return kernels::make_cuda_executor(stack_, executor_spec_); }

  static ChosenExecutor on_cpu(std::unique_ptr<kernels::Executor> cpu, const std::string& reason) {
    return {Backend::kCpu, std::move(cpu), {reason}};
  }

  // With the CPU behind it: `cpu`, or one that is made for it.
  ChosenExecutor on_cuda(std::unique_ptr<kernels::Executor> cuda, std::unique_ptr<kernels::Executor> cpu,
                         const std::string& reason) const {
    if (spec_.fallback == Fallback::kNone) return {Backend::kCuda, std::move(cuda), {reason}};
    if (!cpu) {
      kernels::ExecutorSpec cpu_spec = executor_spec_;
      cpu_spec.precision = Precision::kFp32;
      try {
        cpu = kernels::make_cpu_executor(stack_, cpu_spec);
      } catch (const kernels::BackendUnavailable&) {  // not in this build
        return {Backend::kCuda, std::move(cuda), {reason}};
      }
    }
    auto both = std::make_unique<FailoverExecutor>(*stack_, executor_spec_,
                                                   FailoverExecutor::piece_frames(*stack_, executor_spec_),
                                                   std::move(cuda), std::move(cpu), monotonic_clock());
    const FailoverExecutor* fallback = both.get();
    return {Backend::kCuda, std::move(both), {reason}, fallback};
  }

  ChosenExecutor automatically() const {
    const Contest contest{spec_.max_streams,
                          spec_.auto_chunk_frames > 0 ? spec_.auto_chunk_frames : spec_.max_chunk_frames};
    const double macs = static_cast<double>(stack_->macs_per_frame()) * static_cast<double>(contest.streams) *
                        static_cast<double>(contest.chunk_frames);
    const bool is_for_cuda_alone = spec_.precision != Precision::kFp32;
    std::unique_ptr<kernels::Executor> cpu;
    std::string no_cpu;
    try {
      if (!is_for_cuda_alone) cpu = make_cpu();
    } catch (const kernels::BackendUnavailable& why) {
      no_cpu = why.what();
    } catch (const std::bad_alloc&) {
      if (spec_.fallback != Fallback::kNone) throw;
      no_cpu = "the state does not fit in the host's memory";
    }
    if (cpu && macs < static_cast<double>(kLeastContestMacs)) {
      return on_cpu(std::move(cpu), "fewer than " + std::to_string(kLeastContestMacs) +
                                        " multiply-accumulates a call are no work for a card");
    }
    std::unique_ptr<kernels::Executor> cuda;
    std::string no_cuda;
    bool is_refused = false;  // by a card that is there
    try {
      cuda = make_cuda();
    } catch (const std::bad_alloc&) {
      no_cuda = "the state does not fit in the card's memory";
      is_refused = true;
    } catch (const std::invalid_argument& why) {
      no_cuda = why.what();
      is_refused = true;
    } catch (const kernels::BackendUnavailable& why) {
      no_cuda = why.what();
    }
    if (!cuda && is_for_cuda_alone) {
      throw std::invalid_argument("precision: expected fp32 " +
                                  std::string(is_refused ? "where the card is of no use" : "without a card") +
                                  ", got " + std::string(to_string(spec_.precision)) + ": " + no_cuda);
    }
    if (!cuda) {
      // Whatever keeps the card from it, the CPU may do: its own refusal is the one that the user reads.
      ChosenExecutor chosen = on_cpu(cpu ? std::move(cpu) : make_cpu(), no_cuda);
      chosen.choice.is_without_card = is_refused;
      return chosen;
    }
    if (is_for_cuda_alone) {
      return on_cuda(std::move(cuda), nullptr, "the cpu has no " + std::string(to_string(spec_.precision)));
    }
    if (!cpu) return on_cuda(std::move(cuda), nullptr, no_cpu);
    return by_contest(std::move(cpu), std::move(cuda), contest);
  }

  ChosenExecutor by_contest(std::unique_ptr<kernels::Executor> cpu, std::unique_ptr<kernels::Executor> cuda,
                            const Contest& contest) const {
    const auto run = [&](kernels::Executor& on_host, kernels::Executor& on_card) {
      const BackendFigures figures = time_backends(on_host, on_card, *stack_, contest, monotonic_clock());
      if (const char* failure = on_card.failure()) {
        throw kernels::BackendUnavailable(on_card.description() + " failed when it was timed: " + failure);
      }
      return figures;
    };
    const auto time = [&] {
      if (contest.chunk_frames == spec_.max_chunk_frames) return run(*cpu, *cuda);
      // Executors lay out their work by the longest chunk: what is timed is made for the one that is asked about.
      cpu.reset();
      cuda.reset();
      kernels::ExecutorSpec contest_spec = executor_spec_;
      contest_spec.max_chunk_frames = contest.chunk_frames;
      return run(*kernels::make_cpu_executor(stack_, contest_spec), *kernels::make_cuda_executor(stack_, contest_spec));
    };
    const std::string key = contest_key(*stack_, cpu->description(), cuda->description() + how_it_is_asked(), contest);
    BackendFigures figures;
    try {
      figures = find_figures(key, time);
    } catch (const kernels::BackendUnavailable& why) {
      ChosenExecutor chosen = on_cpu(cpu ? std::move(cpu) : make_cpu(), why.what());
      chosen.choice.is_without_card = true;
      return chosen;
    }
    if (figures.cuda_p999 < figures.cpu_p999) {
      ChosenExecutor chosen = on_cuda(cuda ? std::move(cuda) : make_cuda(), std::move(cpu), describe(figures, contest));
      chosen.choice.figures = figures;
      return chosen;
    }
    ChosenExecutor chosen = on_cpu(cpu ? std::move(cpu) : make_cpu(), describe(figures, contest));
    chosen.choice.figures = figures;
    return chosen;
  }

  // What changes a card's figures besides what its description tells.
  std::string how_it_is_asked() const {
    const CudaSpec& cuda = spec_.cuda;
    std::string how = cuda.wait == Wait::kSpin ? "" : cuda.wait == Wait::kYield ? ", yielding" : ", sleeping";
    if (cuda.invocation == CudaInvocation::kResident) {
      how += ", " + std::to_string(cuda.resident_clusters) + " clusters";
    }
    return how;
  }

  static std::string describe(const BackendFigures& figures, const Contest& contest) {
    const auto count = [](std::int64_t number, const char* what) {
      return std::to_string(number) + what + (number == 1 ? "" : "s");
    };
    return "p99.9 of " + count(contest.chunk_frames, " frame") + " of " + count(contest.streams, " stream") + ": cpu " +
           duration_text(figures.cpu_p999) + ", cuda " + duration_text(figures.cuda_p999) + ", timed " +
           (figures.is_remembered ? "earlier" : "now") + " over " + count(figures.calls, " call") +
           (figures.is_disturbed ? " on a busy machine, so not for the next time" : "");
  }

  const std::shared_ptr<const kernels::Stack> stack_;
  const EngineSpec& spec_;
  const kernels::ExecutorSpec executor_spec_;
};

}  // namespace

ChosenExecutor choose_executor(const std::shared_ptr<const kernels::Stack>& stack, const EngineSpec& spec) {
  return Maker(stack, spec).make();
}

}  // namespace halotap::pipeline
