#include "lessons/13_profiler/rounds.h"

#include <algorithm>
#include <cmath>
#include <iostream>

#include "src/core/larger.h"
#include "src/core/table.h"
#include "src/core/timing.h"

namespace gradus {

static bool& planted(Plants& plants, Bottleneck what) {
  switch (what) {
    case Bottleneck::Loading: return plants.reloads_text;
    case Bottleneck::CopyToHost: return plants.watches_gradients;
    case Bottleneck::Chain: break;
  }
  return plants.unfused_gelu;
}

std::vector<Round> search(const RunLoop& loop, int64_t timed_repeats) {
  std::vector<Round> rounds;
  Plants plants;
  for (bool mended = true; mended;) {
    Round& round = rounds.emplace_back();
    round.plants = plants;
    round.run = loop(plants, true);
    round.findings = diagnose(round.run.steps);
    mended = !round.findings.empty() && std::exchange(planted(plants, round.findings[0].what), false);
  }
  // One after the other, again and again, so that all see the same machine.
  std::vector<std::vector<double>> seconds(rounds.size());
  for (int64_t i = 0; i < timed_repeats; ++i)
    for (size_t r = 0; r < rounds.size(); ++r) {
      const std::vector<double> steps = loop(rounds[r].plants, false).seconds;
      seconds[r].insert(seconds[r].end(), steps.begin() + std::min<ptrdiff_t>(2, ptrdiff_t(steps.size()) - 1),
                        steps.end());
    }
  for (size_t r = 0; r < rounds.size(); ++r) rounds[r].step_seconds = summarize(seconds[r]).median;
  return rounds;
}

LoopCounts counts_of(const TracedStep& step) {
  LoopCounts counts{int64_t(step.kernels.size()), 0, 0};
  for (const TracedSpan& r : step.ranges) {
    if (r.name == "copy to the host") counts.bytes_to_host += r.bytes;
    counts.loads += r.name == "load text";
  }
  return counts;
}

static std::string count_text(const Finding& f) {
  switch (f.what) {
    case Bottleneck::Loading: return std::to_string(f.count) + " load";
    case Bottleneck::CopyToHost: return bytes_text(f.count);
    case Bottleneck::Chain: break;
  }
  return std::to_string(f.count) + " kernels";
}

// What each trace promised, and what came of it.
static void print_findings(const std::vector<Round>& rounds) {
  Table table({"round", "step", "the trace says", "where", "a step", "promised", "saved"});
  for (size_t r = 0; r < rounds.size(); ++r) {
    const Round& round = rounds[r];
    const std::string step = seconds_text(round.step_seconds), number = std::to_string(r + 1);
    if (round.findings.empty()) table.row({number, step, "nothing more", "", "", "", ""});
    for (size_t i = 0; i < round.findings.size(); ++i) {
      const Finding& f = round.findings[i];
      const bool mended = i == 0 && r + 1 < rounds.size();
      table.row({i == 0 ? number : "", i == 0 ? step : "", name_of(f.what), f.where, count_text(f),
                 seconds_text(f.seconds),
                 mended ? seconds_text(round.step_seconds - rounds[r + 1].step_seconds) : ""});
    }
  }
  std::cout << "\n(a) Each round mends its first finding\n\n" << table;
}

static std::string row_name(const Plants& p) {
  std::string name;
  if (p.reloads_text) name += "loading, ";
  if (p.watches_gradients) name += "copies, ";
  if (p.unfused_gelu) name += "chain, ";
  return name.empty() ? "mended" : name.substr(0, name.size() - 2);
}

// Kernels of an unfused GELU, forward and backward, that one kernel each replaces; see unfused_gelu().
constexpr int64_t kUnfused = 9 + 12, kFused = 1 + 1;

static void check_counts(const std::vector<Round>& rounds, const TransformerConfig& model, Report& report) {
  const LoopCounts mended = counts_of(rounds.back().run.steps[0]);
  int64_t calls = 0, bytes = 0, loads = 0;  // in how many steps they are not as the plants say
  for (const Round& round : rounds)
    for (const TracedStep& step : round.run.steps) {
      const LoopCounts counts = counts_of(step);
      const Plants& p = round.plants;
      calls += counts.calls != mended.calls + p.unfused_gelu * model.layers * (kUnfused - kFused);
      bytes += counts.bytes_to_host != 4 + p.watches_gradients * 4 * model.parameter_count();
      loads += counts.loads != p.reloads_text;
    }
  report.check_equal("steps with other kernel calls than predicted", calls, 0);
  report.check_equal("steps with other bytes to the host", bytes, 0);
  report.check_equal("steps with other loads", loads, 0);
}

static void check_losses(const std::vector<Round>& rounds, Report& report) {
  int64_t unlike = 0;
  double apart = 0;
  for (const Round& round : rounds)
    for (size_t i = 0; i < round.run.losses.size(); ++i) {
      const double loss = round.run.losses[i], first = rounds[0].run.losses[i];
      if (round.plants.unfused_gelu) unlike += loss != first && !std::isnan(loss);
      apart = larger(apart, std::abs(loss - first) / first);
    }
  report.check_equal("losses that loading and copies changed", unlike, 0);
  report.check_at_most("losses with a fused GELU, apart", apart, 1e-3);
}

void report_rounds(const std::vector<Round>& rounds, const TransformerConfig& model, int64_t tokens,
                   Report& report) {
  print_findings(rounds);
  for (const Round& round : rounds) {
    ReportRow& row = report.row(row_name(round.plants));
    const LoopCounts counts = counts_of(round.run.steps[0]);
    if (current().device.has_data()) {
      row.ms_per_step = round.step_seconds * 1e3;
      row.tokens_per_s = double(tokens) / round.step_seconds;
    }
    row.extra = {{"kernels", double(counts.calls)},
                 {"bytes to host", double(counts.bytes_to_host)},
                 {"loads", double(counts.loads)}};
  }
  // emu: a kernel takes so long that no loading is worth mending.
  const bool emulated = std::string_view(current().device.name()) == "emu";
  report.check_equal("bottlenecks named and mended", int64_t(rounds.size()) - 1, 3,
                     emulated ? "emulated kernels hide the loading" : "");
  report.check_equal("findings in the last round", int64_t(rounds.back().findings.size()), 0);
  check_counts(rounds, model, report);
  check_losses(rounds, report);
}

}  // namespace gradus
