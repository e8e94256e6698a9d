#include "halotap/pipeline/ledger.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace halotap::pipeline {
namespace {

using Seconds = std::chrono::duration<double>;

// A sum of terms that fills the budget exactly fits: what rounding adds to it is less than this.
constexpr double kRounding = 1e-9;

std::string text_of(double value) {
  char text[32];
  std::snprintf(text, sizeof text, std::abs(value) >= 1e4 ? "%.0f" : "%.4g", value);
  return text;
}

// Every digit: a value is to be taken as it is.
std::string exact_text_of(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.12g", value);
  return text;
}

std::string ms_of(Seconds time) { return text_of(time.count() * 1e3) + " ms"; }

// The greatest value of the term's key that leaves it `allowed`; none when no value does, or none is known.
std::optional<double> greatest_value(const LatencyTerm& term, Seconds allowed) {
  const LatencyKey& key = term.key;
  if (!(key.per_step > 0) || !(term.rate_hz > 0) || allowed.count() < -kRounding) return std::nullopt;
  const double frames = std::floor(allowed.count() * term.rate_hz + 1e-6);
  const double value = key.at_zero + key.per_step * std::floor(frames / static_cast<double>(key.step_frames));
  if (!(value > 0)) return std::nullopt;
  // Rounded down: a value that is a little smaller fits too.
  const double steps_a_unit = value < 1 ? 1e6 : 1e3;
  return std::floor(value * steps_a_unit + 1e-6) / steps_a_unit;
}

// Of terms that are as long, the one that comes first.
std::vector<const LatencyTerm*> longest_first(const std::vector<LatencyTerm>& terms) {
  std::vector<const LatencyTerm*> sorted;
  for (const LatencyTerm& term : terms) sorted.push_back(&term);
  std::sort(sorted.begin(), sorted.end(), [](const LatencyTerm* a, const LatencyTerm* b) {
    return a->time() != b->time() ? a->time() > b->time() : a < b;
  });
  return sorted;
}

// Whether another value of the term's key would change other terms: those behind it that wait, or may wait, in frames
// of the rate that it sets. What such a value comes to in all is known only to the stages themselves.
bool changes_others(const LatencyLedger& ledger, const LatencyTerm& term) {
  const std::vector<LatencyTerm>& terms = ledger.terms();
  return term.sets_rate &&
         std::any_of(terms.begin() + (&term - terms.data()) + 1, terms.end(), [](const LatencyTerm& t) {
           const bool is_behind = t.part == LatencyPart::kStages || t.part == LatencyPart::kSinks;
           return is_behind && (t.time() > Seconds(0) || !t.key.name.empty());
         });
}

// What to change so that all terms together fit `budget`, which they do not.
Misfit over_budget(const LatencyLedger& ledger, Seconds budget) {
  const Seconds total = ledger.total();
  const std::vector<const LatencyTerm*> terms = longest_first(ledger.terms());
  const LatencyTerm& longest = *terms.front();
  Misfit misfit{"does not fit " + ms_of(budget) + ": ", longest.place, longest.key.name, std::nullopt};
  if (longest.time() > budget) {
    misfit.text += longest.place + " alone is " + ms_of(longest.time());
  } else {
    misfit.text += ms_of(total) + " in all, of which " + longest.place + " is " + ms_of(longest.time());
  }
  std::string enough;
  std::string keys;
  bool is_known = true;  // what every key can do by itself
  for (const LatencyTerm* const pointer : terms) {
    const LatencyTerm& term = *pointer;
    if (term.time() <= Seconds(0) || term.key.name.empty()) continue;
    keys += (keys.empty() ? "" : ", ") + term.key.name + " (" + term.place + ", " + ms_of(term.time()) + ")";
    if (changes_others(ledger, term)) {
      is_known = false;
      continue;
    }
    const Seconds allowed = budget - (total - term.time());
    const std::optional<double> value = greatest_value(term, allowed);
    const bool is_told = term.key.per_step > 0;
    if (is_told ? !value : allowed <= Seconds(0)) continue;
    if (enough.empty()) {
      misfit.place = term.place;
      misfit.key = term.key.name;
      misfit.at_most = value;
    }
    enough += (enough.empty() ? "; " : ", or ") + term.key.name + ": at most " +
              (is_told ? exact_text_of(*value) : ms_of(allowed) + " for " + term.place);
  }
  if (!enough.empty()) {
    misfit.text += enough;
  } else {
    misfit.text +=
        keys.empty()
            ? "; no key changes that"
            : (is_known ? "; no key is enough by itself: " : "; no key is known to be enough by itself: ") + keys;
  }
  return misfit;
}

}  // namespace

std::string_view to_string(LatencyKind kind) {
  switch (kind) {
    case LatencyKind::kAlgorithmic:
      return "algorithmic";
    case LatencyKind::kBuffering:
      return "buffering";
    case LatencyKind::kMeasured:
      return "measured";
  }
  return "?";
}

void LatencyLedger::add(const std::vector<LatencyTerm>& terms, const std::string& prefix) {
  for (LatencyTerm term : terms) {
    if (!term.key.name.empty()) term.key.name = prefix + term.key.name;
    terms_.push_back(std::move(term));
  }
}

Seconds LatencyLedger::total(LatencyKind kind) const {
  Seconds sum{0};
  for (const LatencyTerm& term : terms_) {
    if (term.kind == kind) sum += term.time();
  }
  return sum;
}

Seconds LatencyLedger::total() const {
  Seconds sum{0};
  for (const LatencyTerm& term : terms_) sum += term.time();
  return sum;
}

double LatencyLedger::timed_budget_ms(double budget_ms) const {
  Seconds untimed{0};
  for (const LatencyTerm& term : terms_) {
    if (!term.is_timed) untimed += term.time();
  }
  return std::max(budget_ms - untimed.count() * 1e3, 0.0);
}

std::int64_t LatencyLedger::frames(LatencyKind kind, std::optional<LatencyPart> part) const {
  std::int64_t sum = 0;
  Seconds others{0};
  for (const LatencyTerm& term : terms_) {
    if (term.kind != kind || (part && term.part != *part)) continue;
    if (term.rate_hz == rate_hz_) {
      sum += term.frames;
    } else {
      others += term.time();
    }
  }
  return sum + std::llround(others.count() * rate_hz_);
}

std::vector<Misfit> misfits(const LatencyLedger& ledger, const LatencyConfig& config, std::int64_t chunk_frames,
                            const std::optional<ComputeTime>& compute) {
  std::vector<Misfit> found;
  const auto check_sum = [&found](const LatencyLedger& terms, std::optional<double> budget_ms, const std::string& of) {
    const Seconds budget(budget_ms.value_or(0) / 1e3);
    if (!budget_ms || terms.total().count() <= budget.count() + kRounding) return;
    found.push_back(over_budget(terms, budget));
    found.back().text = of + found.back().text;
  };
  check_sum(ledger, config.budget_ms, "");
  LatencyLedger source(ledger.rate_hz());
  for (const LatencyTerm& term : ledger.terms()) {
    if (term.part == LatencyPart::kSource && term.is_timed) source.add(term);
  }
  check_sum(source, config.budgets.source_ms, "latency.budgets_ms.source: ");
  if (!compute) return found;

  const LatencyTerm term = measured_term(*compute);
  const auto check_time = [&](std::chrono::nanoseconds time, std::chrono::nanoseconds p50,
                              std::optional<double> budget_ms, const std::string& part, const std::string& key) {
    const Seconds budget(budget_ms.value_or(0) / 1e3);
    if (!budget_ms || Seconds(time) <= budget) return;
    found.push_back({"latency.budgets_ms." + part + ": does not fit " + ms_of(budget) + ": a chunk takes " +
                         ms_of(time) + " (" + quantile_text(*compute, p50) + "); " + key,
                     term.place, key, std::nullopt});
  };
  check_time(compute->engine, compute->engine_p50, config.budgets.engine_ms, "engine", term.key.name);
  check_time(compute->stages, compute->stages_p50, config.budgets.stages_ms, "stages", "stages");
  const Seconds period(static_cast<double>(chunk_frames) / ledger.rate_hz());
  if (compute->chunk >= period) {
    found.push_back({"cannot keep up: a chunk of " + std::to_string(chunk_frames) +
                         (chunk_frames == 1 ? " frame takes " : " frames takes ") + ms_of(compute->chunk) + " (" +
                         term.note + "), and arrives in " + ms_of(period) + "; " + term.key.name +
                         ", or a longer chunk where short ones cost more a frame",
                     term.place, term.key.name, std::nullopt});
  }
  return found;
}

}  // namespace halotap::pipeline
