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
  for (bool fixed = true; fixed;) {
    Round& round = rounds.emplace_back();
    round.plants = plants;
    round.run = loop(plants, true);
    round.findings = diagnose(round.run.steps);
    fixed = !round.findings.empty() && std::exchange(planted(plants, round.findings[0].what), false);
  }
  // Alternating runs (A B C D A B C D), so that a change of the machine's speed affects all loops.
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

// The findings of each round, with the predicted and the measured saving.
static void print_findings(const std::vector<Round>& rounds) {
  Table table({"round", "step time", "bottleneck", "range", "amount per step", "predicted saving",
               "measured saving"});
  for (size_t r = 0; r < rounds.size(); ++r) {
    const Round& round = rounds[r];
    const std::string step = seconds_text(round.step_seconds), number = std::to_string(r + 1);
    if (round.findings.empty()) table.row({number, step, "none", "", "", "", ""});
    for (size_t i = 0; i < round.findings.size(); ++i) {
      const Finding& f = round.findings[i];
      const bool fixed = i == 0 && r + 1 < rounds.size();
      table.row({i == 0 ? number : "", i == 0 ? step : "", name_of(f.what), f.where, count_text(f),
                 seconds_text(f.seconds),
                 fixed ? seconds_text(round.step_seconds - rounds[r + 1].step_seconds) : ""});
    }
  }
  std::cout << "\n(a) Bottlenecks found in the trace, the largest predicted saving first. Each round fixes "
               "its first one.\n"
               "h.*: all layers; the kernels of their backward passes are counted, too.\n\n"
            << table;
}

static std::string row_name(const Plants& p) {
  std::string name;
  if (p.reloads_text) name += ", loading";
  if (p.watches_gradients) name += ", copies";
  if (p.unfused_gelu) name += ", unfused GELU";
  return name.empty() ? "all fixed" : "not fixed: " + name.substr(2);
}

// Kernels of an unfused and of a fused GELU, forward + backward; see unfused_gelu().
constexpr int64_t kUnfused = 9 + 12, kFused = 1 + 1;

static void check_counts(const std::vector<Round>& rounds, const TransformerConfig& model, Report& report) {
  const LoopCounts fixed = counts_of(rounds.back().run.steps[0]);
  int64_t calls = 0, bytes = 0, loads = 0;  // the number of steps that differ from the prediction
  for (const Round& round : rounds)
    for (const TracedStep& step : round.run.steps) {
      const LoopCounts counts = counts_of(step);
      const Plants& p = round.plants;
      calls += counts.calls != fixed.calls + p.unfused_gelu * model.layers * (kUnfused - kFused);
      bytes += counts.bytes_to_host != 4 + p.watches_gradients * 4 * model.parameter_count();
      loads += counts.loads != p.reloads_text;
    }
  report.check_equal("steps whose kernel calls differ from the prediction", calls, 0);
  report.check_equal("steps whose bytes copied to host differ from the prediction", bytes, 0);
  report.check_equal("steps whose text loads differ from the prediction", loads, 0);
}

static void check_losses(const std::vector<Round>& rounds, Report& report) {
  int64_t different = 0;
  double largest = 0;
  for (const Round& round : rounds) {
    const auto same_gelu = [&](const Round& r) { return r.plants.unfused_gelu == round.plants.unfused_gelu; };
    const std::vector<double>&losses = round.run.losses, &first = rounds[0].run.losses,
          &same = std::find_if(rounds.begin(), rounds.end(), same_gelu)->run.losses;
    for (size_t i = 0; i < losses.size(); ++i) {
      different += losses[i] != same[i] && !std::isnan(losses[i]);
      largest = larger(largest, std::abs(losses[i] - first[i]) / first[i]);
    }
  }
  report.check_equal("losses that differ bitwise from the first round with the same GELU", different, 0);
  report.check_at_most("largest relative difference of losses, fused / unfused GELU", largest, 1e-3);
}

// Copies and chains are found by counts of the trace, so they decide the exit code; loading is found by its
// time.
static void check_findings(const std::vector<Round>& rounds, Report& report) {
  int64_t counted = 0, loading = 0, left = 0;
  for (size_t r = 0; r + 1 < rounds.size(); ++r) {
    const bool is_loading = rounds[r].findings[0].what == Bottleneck::Loading;
    loading += is_loading, counted += !is_loading;
  }
  for (const Finding& f : rounds.back().findings) left += f.what != Bottleneck::Loading;
  report.check_equal("copies and unfused GELU found in the trace and fixed", counted, 2);
  report.check_equal("copies and unfused kernels found in the last round", left, 0);
  report.timing_at_least("data loading found in the trace and fixed", double(loading), 1);
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
    int64_t moved = 0;  // by the kernels, in all recorded steps
    for (const ProfileRow& kernel : round.run.kernels) moved += kernel.bytes;
    row.extra = {{"kernel calls/step", double(counts.calls)},
                 {"MB moved/step", double(moved) * 1e-6 / double(round.run.steps.size())},
                 {"bytes copied to host/step", double(counts.bytes_to_host)},
                 {"text loads/step", double(counts.loads)}};
  }
  check_findings(rounds, report);
  check_counts(rounds, model, report);
  check_losses(rounds, report);
}

}  // namespace gradus
