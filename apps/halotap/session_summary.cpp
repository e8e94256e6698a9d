#include "session_summary.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "halotap/io/endpoint.hpp"
#include "latency_json.hpp"
#include "message.hpp"
#include "played_json.hpp"

namespace halotap::apps {
namespace {

using nlohmann::ordered_json;
using pipeline::LatencyKind;
using pipeline::LatencyPart;

double seconds_of(std::chrono::nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

std::int64_t algorithmic_latency_frames(const SessionSummary& summary) {
  return summary.processed.ledger.frames(LatencyKind::kAlgorithmic);
}

std::int64_t stage_latency_frames(const SessionSummary& summary) {
  return summary.processed.ledger.frames(LatencyKind::kAlgorithmic, LatencyPart::kStages);
}

// Of a live source, without a resampler, whose delay is algorithmic.
std::int64_t source_latency_frames(const SessionSummary& summary) {
  return summary.processed.ledger.frames(LatencyKind::kBuffering, LatencyPart::kSource);
}

ordered_json json_of(const std::string& name, const pipeline::StageCounters& counters) {
  return {{"type", name},
          {"frames_in", counters.frames_in},
          {"frames_out", counters.frames_out},
          {"frames_merged", counters.frames_merged},
          {"frames_discarded", counters.frames_discarded},
          {"events", counters.events},
          {"events_dropped", counters.events_dropped}};
}

ordered_json json_of(const pipeline::Failover& how, std::int64_t at_frame, const ordered_json& after_s) {
  return {{"device", how.from},
          {"precision", pipeline::to_string(how.precision)},
          {"reason", how.reason},
          {"frame", at_frame},
          {"time_s", after_s},
          {"streams", how.streams},
          {"rebuild_us", microseconds(how.rebuild_time)}};
}

std::string text_of(const std::string& name, const pipeline::StageCounters& counters) {
  std::string text =
      name + ": frames " + std::to_string(counters.frames_in) + " in, " + std::to_string(counters.frames_out) + " out";
  const auto note = [&text](std::uint64_t count, const char* what) {
    if (count > 0) text += ", " + std::to_string(count) + what;
  };
  note(counters.frames_merged, " merged");
  note(counters.frames_discarded, " discarded");
  note(counters.events, " events");
  note(counters.events_dropped, " events dropped");
  return text;
}

std::string text_of(const io::PlayedCounters& played) {
  std::string text = "played " + std::to_string(played.frames_played) + " frames, " +
                     std::to_string(played.frames_dropped) + " dropped, " + std::to_string(played.frames_discarded) +
                     " discarded; underruns: " + std::to_string(played.underruns) + ", " +
                     std::to_string(played.device_underruns) + " of the device itself";
  if (played.corrects_drift != 0) {
    text += "; drift corrected by " + format_number(played.correction_ppm, 3) +
            " ppm: " + std::to_string(played.frames_added) + " frames added, " + std::to_string(played.frames_removed) +
            " removed";
  }
  return text;
}

// A session's own ring never overflows; a live source's does when the session is too slow.
std::int64_t frames_dropped(const io::SessionReport& report) {
  return static_cast<std::int64_t>(report.ring.frames_dropped_overrun) + report.missing.frames_dropped;
}

// At the end: the CPU goes on in fp32.
pipeline::Precision precision_of(const SessionSummary& summary) {
  return summary.processed.report.failover ? pipeline::Precision::kFp32 : summary.precision;
}

std::array<pipeline::LatencyFigures, pipeline::kLatencyParts> latency_of(const io::SessionReport& report) {
  std::array<pipeline::LatencyFigures, pipeline::kLatencyParts> latency;
  for (std::size_t part = 0; part < latency.size(); ++part) {
    latency[part] = report.latency.figures(static_cast<pipeline::LatencyPart>(part));
  }
  return latency;
}

std::string text_of(const pipeline::InvalidSamples& invalid) {
  return std::to_string(invalid.nan) + " NaN, " + std::to_string(invalid.infinite) + " infinite, " +
         std::to_string(invalid.too_large) + " above 1e30";
}

std::string text_of(const io::RealtimeGrant& grant) {
  std::string text;
  const auto add = [&text](const std::string& words) { text += (text.empty() ? "" : ", ") + words; };
  if (grant.priority > 0) add("priority " + std::to_string(grant.priority));
  if (!grant.cpus.empty()) {
    std::string cpus = "processors";
    for (const int cpu : grant.cpus) cpus += " " + std::to_string(cpu);
    add(cpus);
  }
  if (grant.memory_locked) add("memory locked");
  if (!grant.refusals.empty()) add(std::to_string(grant.refusals.size()) + " refused");
  return text;
}

void print_json(std::ostream& out, const SessionSummary& summary) {
  const io::SessionReport& report = summary.processed.report;
  const double duration_s = static_cast<double>(report.frames_in) / summary.rate_hz;
  const double elapsed_s = seconds_of(report.elapsed);
  const auto step_us = [&report](std::chrono::nanoseconds time) {
    return report.step_time.count() == 0 ? ordered_json() : ordered_json(microseconds(time));
  };
  ordered_json json;
  if (summary.run_latency) json["line"] = "summary";
  json["frames"] = report.frames_in;
  json["frames_out"] = report.frames_out;
  json["frames_dropped"] = frames_dropped(report);
  json["streams"] = summary.streams;
  json["rate_hz"] = summary.rate_hz;
  json["duration_s"] = duration_s;
  json["elapsed_s"] = elapsed_s;
  json["real_time_factor"] = report.frames_in == 0 ? ordered_json() : ordered_json(elapsed_s / duration_s);
  json["stopped"] = report.stopped;
  json["chunks"] = report.step_time.count();
  json["p50_us"] = step_us(report.step_time.quantile(0.5));
  json["p99_us"] = step_us(report.step_time.quantile(0.99));
  json["p999_us"] = step_us(report.step_time.quantile(0.999));
  json["max_us"] = step_us(report.step_time.max());
  json["chunk_frames"] = summary.chunk_frames == 0 ? ordered_json() : ordered_json(summary.chunk_frames);
  json["lookahead_frames"] = summary.processed.lookahead_frames;
  json["stage_latency_frames"] = stage_latency_frames(summary);
  if (summary.chunk_frames == 0) {
    json["algorithmic_latency_frames"] = nullptr;
    json["algorithmic_latency_ms"] = nullptr;
  } else {
    const std::int64_t latency_frames = algorithmic_latency_frames(summary);
    json["algorithmic_latency_frames"] = latency_frames;
    json["algorithmic_latency_ms"] = static_cast<double>(latency_frames) / summary.rate_hz * 1e3;
  }
  json["latency"] = latency_json(latency_of(report));
  if (summary.run_latency) {
    const std::optional<double> budget_ms = summary.run_latency->budget_ms;
    json["budget_ms"] = budget_ms ? ordered_json(*budget_ms) : ordered_json();
    json["timed_budget_ms"] =
        budget_ms ? ordered_json(summary.processed.ledger.timed_budget_ms(*budget_ms)) : ordered_json();
    json["on_miss"] = to_string(summary.run_latency->on_miss);
    json["frames_skipped"] = report.frames_skipped;
    json["skips"] = report.skips;
    json["frames_held"] = report.frames_held;
  }
  // Offline nobody looks at them.
  if (summary.chunk_frames > 0) {
    json["samples_invalid"] = {
        {"nan", report.invalid.nan}, {"infinite", report.invalid.infinite}, {"too_large", report.invalid.too_large}};
  }
  if (summary.is_live) {
    json["gaps"] = report.gaps;
    json["frames_lost"] = report.missing.frames_lost;
    json["frames_filled"] = report.frames_filled;
    json["frames_marked"] = report.frames_marked;
    json["source_latency_frames"] = source_latency_frames(summary);
    json["source_latency_ms"] = static_cast<double>(source_latency_frames(summary)) / summary.rate_hz * 1e3;
  }
  const auto add_recording = [&json](const char* name, const io::RecorderCounters& recording) {
    if (recording.files.empty()) return;
    json[name] = {
        {"frames", recording.frames_written}, {"frames_dropped", recording.frames_dropped}, {"files", recording.files}};
  };
  add_recording("recording", report.recording.input);
  add_recording("recording_output", report.recording.output);
  if (summary.asks_realtime) {
    const io::RealtimeGrant& grant = report.realtime;
    json["realtime"] = {{"priority", grant.priority > 0 ? ordered_json(grant.priority) : ordered_json()},
                        {"cpus", !grant.cpus.empty() ? ordered_json(grant.cpus) : ordered_json()},
                        {"memory_locked", grant.memory_locked},
                        {"refusals", grant.refusals}};
  }
  json["device"] = summary.processed.device;
  json["precision"] = pipeline::to_string(precision_of(summary));
  json["failover"] = nullptr;
  if (report.failover) {
    json["failover"] = json_of(report.failover->how, report.failover->at_frame, seconds_of(report.failover->after));
  } else if (summary.trial_failover) {
    json["failover"] = json_of(*summary.trial_failover, 0, nullptr);
  }
  json["stages"] = ordered_json::array();
  for (std::size_t i = 0; i < summary.stages.size(); ++i) {
    json["stages"].push_back(json_of(summary.stages[i], report.stages[i]));
  }
  json["sinks"] = summary.sinks;
  for (std::size_t i = 0; i < summary.sinks.size(); ++i) {
    if (i >= report.played.size() || !report.played[i]) continue;
    ordered_json played = {{"sink", summary.sinks[i]}};
    played.update(played_json(*report.played[i]));
    json["played"].push_back(std::move(played));
  }
  out << json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << '\n';
}

// From capture to the sinks; nothing where no chunk has an instant of capture.
void print_machine_latency(std::ostream& out, const SessionSummary& summary) {
  const io::SessionReport& report = summary.processed.report;
  const auto latency = latency_of(report);
  const auto part = [&latency](pipeline::LatencyPart which) { return latency[static_cast<std::size_t>(which)]; };
  const auto time = [](std::int64_t nanoseconds) {
    return pipeline::duration_text(std::chrono::nanoseconds(nanoseconds));
  };
  const pipeline::LatencyFigures whole = part(pipeline::LatencyPart::kWhole);
  if (whole.chunks == 0) return;
  out << "machine    from capture to the sinks p50 " << time(whole.p50_ns) << ", p99 " << time(whole.p99_ns)
      << ", p99.9 " << time(whole.p999_ns) << ", max " << time(whole.max_ns);
  if (summary.run_latency && summary.run_latency->budget_ms) {
    const double budget_ms = *summary.run_latency->budget_ms;
    const double left_ms = summary.processed.ledger.timed_budget_ms(budget_ms);
    out << "; " << whole.misses << " of " << whole.chunks
        << (left_ms > 0 ? " chunks above " + format_number(left_ms) + " ms, left of "
                        : " chunks late: nothing is left of ")
        << format_number(budget_ms) << " ms";
  }
  out << "\n           p99 by parts:";
  for (const auto which : {pipeline::LatencyPart::kSource, pipeline::LatencyPart::kEngine,
                           pipeline::LatencyPart::kStages, pipeline::LatencyPart::kSinks}) {
    out << (which == pipeline::LatencyPart::kSource ? " " : ", ") << to_string(which) << ' '
        << time(part(which).p99_ns);
    if (part(which).misses > 0) out << " (" << part(which).misses << " misses)";
  }
  out << '\n';
  if (report.skips > 0) {
    out << "           " << report.frames_skipped << " frames skipped in " << report.skips
        << (report.skips == 1 ? " place\n" : " places\n");
  }
  if (report.frames_held > 0) out << "           " << report.frames_held << " frames held in place of late ones\n";
}

void print_text(std::ostream& out, const SessionSummary& summary) {
  const io::SessionReport& report = summary.processed.report;
  const double duration_s = static_cast<double>(report.frames_in) / summary.rate_hz;
  const double elapsed_s = seconds_of(report.elapsed);
  const auto milliseconds = [&summary](std::int64_t frames) {
    return format_number(static_cast<double>(frames) / summary.rate_hz * 1e3) + " ms";
  };

  out << "frames     " << report.frames_in << " in, " << report.frames_out << " out, " << frames_dropped(report)
      << " dropped in each stream (" << format_number(duration_s) << " s at " << format_number(summary.rate_hz, 9)
      << " Hz)\n";
  out << "streams    " << summary.streams << '\n';
  if (report.frames_in > 0) {
    out << "real time  " << format_number(duration_s) << " s in " << pipeline::duration_text(report.elapsed) << ": "
        << format_number(duration_s / elapsed_s, 3)
        << " times real time (real-time factor, time taken over duration: " << format_number(elapsed_s / duration_s, 3)
        << ")\n";
  }
  out << "compute    ";
  if (report.step_time.count() == 0) {
    out << "not measured: no chunk was full\n";
  } else if (summary.chunk_frames == 0) {
    out << pipeline::duration_text(report.step_time.max()) << " for the whole recording\n";
  } else {
    const auto quantile = [&report](double fraction) {
      return pipeline::duration_text(report.step_time.quantile(fraction));
    };
    out << "a chunk: p50 " << quantile(0.5) << ", p99 " << quantile(0.99) << ", p99.9 " << quantile(0.999) << ", max "
        << pipeline::duration_text(report.step_time.max()) << " (measured over " << report.step_time.count()
        << " chunks)\n";
  }
  out << "latency    ";
  if (summary.chunk_frames == 0) {
    out << "offline: the whole recording; lookahead " << summary.processed.lookahead_frames << " frames ("
        << milliseconds(summary.processed.lookahead_frames) << ")\n";
  } else {
    const std::int64_t latency_frames = algorithmic_latency_frames(summary);
    out << "algorithmic " << latency_frames << " frames (" << milliseconds(latency_frames) << "): chunk of "
        << summary.chunk_frames << " frames, lookahead " << summary.processed.lookahead_frames;
    if (!summary.stages.empty()) out << ", stages " << stage_latency_frames(summary);
    const std::int64_t resampler = summary.processed.ledger.frames(LatencyKind::kAlgorithmic, LatencyPart::kSource);
    if (resampler > 0) out << ", resampler " << resampler;
    const std::int64_t sink_resampler = summary.processed.ledger.frames(LatencyKind::kAlgorithmic, LatencyPart::kSinks);
    if (sink_resampler > 0) out << ", the sink's resampler " << sink_resampler;
    out << '\n';
  }
  print_machine_latency(out, summary);
  if (summary.is_live) {
    out << "source     " << report.gaps << (report.gaps == 1 ? " gap" : " gaps") << ", about "
        << report.missing.frames_lost << " frames never came; latency " << source_latency_frames(summary) << " frames ("
        << milliseconds(source_latency_frames(summary)) << ") in the device and the ring, as they state it\n";
  }
  if (report.frames_filled > 0 || report.frames_marked > 0) {
    out << "gaps       " << report.frames_filled << " frames of the input are zeros in their place; they reach "
        << report.frames_marked << " frames of the output\n";
  }
  if (report.invalid.all() > 0) out << "invalid    samples: " << text_of(report.invalid) << '\n';
  const auto print_recording = [&out](const char* name, const io::RecorderCounters& recording) {
    if (recording.files.empty()) return;
    out << name << recording.frames_written << " frames, " << recording.frames_dropped << " dropped, in";
    for (const std::string& file : recording.files) out << ' ' << file;
    out << '\n';
  };
  print_recording("recording  of the input: ", report.recording.input);
  print_recording("recording  of the output: ", report.recording.output);
  if (summary.asks_realtime) out << "realtime   " << text_of(report.realtime) << '\n';
  out << "device     " << summary.processed.device << ", " << pipeline::to_string(precision_of(summary)) << '\n';
  if (report.failover) {
    const pipeline::Failover& how = report.failover->how;
    out << "           up to frame " << report.failover->at_frame << ", "
        << pipeline::duration_text(report.failover->after) << " after the start, " << how.from << ", "
        << pipeline::to_string(how.precision) << ", which failed: " << how.reason << "; " << how.streams
        << (how.streams == 1 ? " stream" : " streams") << " rebuilt in " << pipeline::duration_text(how.rebuild_time)
        << '\n';
  } else if (summary.trial_failover) {
    const pipeline::Failover& how = *summary.trial_failover;
    out << "           from the start on, for " << how.from << ", " << pipeline::to_string(how.precision)
        << ", failed while the budget was tried: " << how.reason << '\n';
  }
  for (std::size_t i = 0; i < summary.stages.size(); ++i) {
    out << (i == 0 ? "stages     " : "           ") << text_of(summary.stages[i], report.stages[i]) << '\n';
  }
  for (std::size_t i = 0; i < summary.sinks.size(); ++i) {
    out << (i == 0 ? "sinks      " : "           ") << summary.sinks[i] << '\n';
    if (i < report.played.size() && report.played[i]) out << "           " << text_of(*report.played[i]) << '\n';
  }
}

}  // namespace

void report_session(const SessionSummary& summary, bool json) {
  const bool output_taken = std::any_of(summary.sinks.begin(), summary.sinks.end(), io::is_standard_output);
  std::ostream& out = output_taken ? std::cerr : std::cout;
  if (json) {
    print_json(out, summary);
  } else {
    print_text(out, summary);
  }
  out.flush();  // in front of what a message says of the same run
  if (summary.processed.report.stopped) {
    say("stopped early, after " + std::to_string(summary.processed.report.frames_in) +
        " frames; what was computed is written");
  }
}

}  // namespace halotap::apps
