#include "lessons/22_scoreboard/methods.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <numeric>

#include "src/core/named.h"
#include "src/core/progress.h"
#include "src/core/table.h"
#include "src/io/atomic_file.h"
#include "src/io/plot.h"

namespace gradus {

std::string published_gain(const Method& m) {
  std::string text;
  for (const auto& [claim, gain] : {std::pair(m.faster, "speed"), {m.less_memory, "memory"}})
    if (claim == Claim::Yes || claim == Claim::Maybe)
      text += (text.empty() ? "" : ", ") + std::string(claim == Claim::Maybe ? "maybe " : "") + gain;
  return text;
}

std::vector<Method> published_methods(int64_t batch) {
  using enum Claim;
  const auto size = [](int64_t sequences) {
    return "--batch=" + std::to_string(std::max<int64_t>(sequences, 1));
  };
  return {
      {"a quarter of the batch size", size(batch / 4), No, Yes, true, "", "smaller tensors fit the cache"},
      {"four times the batch size", size(4 * batch), Yes, No, false, "", "all cores are busy already"},
      {"gradient accumulation, 4 micro-batches", "--micro-batches=4", No, Yes, true, "",
       "smaller tensors fit the cache"},
      {"gradient checkpointing, each block", "--keep=each-block", No, Yes, true},
      {"mixed precision", "--precision=mixed", Yes, Maybe, true, "", "bf16 is not faster on this CPU"},
      {"mixed precision, both runs at batch 1", "--precision=mixed --batch=1", Yes, Maybe, false, "--batch=1",
       "as in the row above"},
      {"empty_cache() after each step", "--empty-every=1", No, Yes, false, "", "it frees nothing allocated"},
      {"Adafactor instead of AdamW", "--optimizer=adafactor", Yes, Yes, true, "",
       "updates take little of a step"},
      {"data preloading, 1 worker", "--workers=1", Yes, No, false, "", "loading takes little time"},
      {"ZeRO-3, relative to ZeRO-0, 4 ranks", "--ranks=4 --zero=3", No, Yes, true, "--ranks=4 --zero=0",
       "a rank updates 1/4 in a short step"},
      {"compiled step", "--calls=compiled", Yes, No, false, "", "matrix products dominate"},
      {"PEFT: LoRA, rank 8", "--lora=8", No, Yes, true, "", "no gradients of frozen weights"},
  };
}

std::vector<Method> course_methods(int64_t batch) {
  using enum Claim;
  const std::string one_each = "--micro-batches=" + std::to_string(batch) + " ";
  return {
      {"flash attention", "--attention=flash", None, None, true},
      {"head in chunks, both with vocabulary 8,192", "--loss-rows=128 --vocab=8192", None, None, true,
       "--vocab=8192"},
      {"captured step", "--calls=captured", None, None, false},
      {"8-bit AdamW", "--optimizer=adamw8bit", None, None, true},
      {"QLoRA, rank 8", "--lora=8 --frozen=4-bits", None, None, true},
      {"tensor parallelism, 2 ranks", "--ranks=2 --tensor-ranks=2", None, None, true},
      {"pipeline parallelism, 2 ranks, 4 micro-batches", "--ranks=2 --pipeline-ranks=2 --micro-batches=4",
       None, None, true},
      {"compiled step, flash", "--attention=flash --calls=compiled", None, None, true},
      {"mixed precision, 8-bit AdamW, flash", "--precision=mixed --optimizer=adamw8bit --attention=flash",
       None, None, true},
      {"accumulation, from-the-start, flash", one_each + "--keep=from-the-start --attention=flash", None,
       None, true},
      {"accumulation, each-block, mixed, 8-bit, flash",
       one_each + "--precision=mixed --optimizer=adamw8bit --keep=each-block --attention=flash", None, None,
       true},
  };
}

std::string verdict(const Method& m, const Measured& r) {
  std::string text;
  const auto say = [&](const char* what, Claim claim, bool ours) {
    if (claim == Claim::Maybe || claim == (ours ? Claim::Yes : Claim::No)) return;
    text += (text.empty() ? "" : ", ") + std::string(ours ? "" : "not ") + what;
  };
  if (!std::isnan(r.speed)) say("faster", m.faster, r.faster());
  say("less memory", m.less_memory, r.less_memory());
  return text.empty() ? "agrees" : text + (m.why.empty() ? "" : ": " + m.why);
}

std::vector<Measured> run_methods(const std::string& heading, const std::vector<Method>& methods,
                                  const Scoreboard& board, Report& report, const Measured* plain) {
  const bool published = methods.front().faster != Claim::None;
  std::vector<std::string> header{"method", "ms/step", "relative tokens/s", "peak", "relative peak"};
  if (published) header.insert(header.end(), {"published gain", "measured here"});
  Table table(header);
  const auto known = [](double x) { return std::isnan(x) ? "-" : number_text(x); };
  if (plain)
    table.row({"plain run", known(plain->seconds * 1e3), "1", bytes_text(plain->peak()), "1", "", ""});
  std::vector<Measured> all;
  std::vector<std::string> unexpected;
  Progress progress(heading.substr(0, 3) + " methods", int64_t(methods.size()));
  for (const Method& m : methods) {
    const Measured r = board.compare(m.flags, m.base);
    std::vector<std::string> cells{m.name, known(r.seconds * 1e3), known(r.speed), bytes_text(r.peak()),
                                   number_text(r.memory)};
    if (published) cells.insert(cells.end(), {published_gain(m), verdict(m, r)});
    table.row(cells);
    if (r.less_memory() != m.saves) unexpected.push_back(m.name);
    all.push_back(r);
    progress.step(int64_t(all.size()));
  }
  progress.done();
  std::cout << heading << "\n" << table << "\n";
  report.check_equal(heading.substr(0, 3) +
                         " methods whose memory saving (yes or no) differs from the lesson's prediction" +
                         (unexpected.empty() ? "" : ": " + joined(unexpected)),
                     int64_t(unexpected.size()), 0);
  return all;
}

std::vector<size_t> front_of(const std::vector<TimeAndMemory>& runs) {
  std::vector<size_t> order(runs.size()), front;
  std::iota(order.begin(), order.end(), size_t(0));
  // BEGIN SOLUTION 22.2
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(runs[a].time, runs[a].memory) < std::pair(runs[b].time, runs[b].memory);
  });
  for (const size_t run : order)
    if (front.empty() || runs[run].memory < runs[front.back()].memory) front.push_back(run);
  // STUB: todo("22.2", "the runs that no other run beats; sorted by time", runs, order, front);
  // END SOLUTION 22.2
  return front;
}

void front_by_hand(std::ostream& out) {
  const std::vector<TimeAndMemory> runs{{1.0, 1.0}, {1.4, 0.7}, {1.2, 0.8}, {1.3, 0.6}};
  const std::vector<size_t> front = front_of(runs);
  Table table({"run", "time", "memory", "on the front"});
  for (size_t i = 0; i < runs.size(); ++i)
    table.row({std::string(1, char('A' + i)), number_text(runs[i].time), number_text(runs[i].memory),
               std::count(front.begin(), front.end(), i) > 0 ? "yes" : "no"});
  out << "Time and memory of four runs, relative to run A\n" << table;
}

// Whether the method computes the same step as the plain run, on one device.
static bool is_the_same_step(const Method& m) {
  return m.base.empty() && m.flags.find("--ranks") == std::string::npos &&
         m.flags.find("--batch") == std::string::npos;
}

void draw_methods(const std::vector<Method>& methods, const std::vector<Measured>& measured,
                  const std::string& path) {
  LinePlot plot{"Time and memory of each method",
                "time per token, relative to the plain run",
                "peak memory, relative to the plain run",
                {},
                {}};
  std::vector<std::string> names{"plain run"};
  std::vector<TimeAndMemory> points{{1, 1}};
  for (size_t i = 0; i < methods.size(); ++i)
    if (is_the_same_step(methods[i]))
      names.push_back(methods[i].name), points.push_back({1 / measured[i].speed, measured[i].memory});
  Series line{"front", {}, {}, Series::Marks::Line};
  const std::vector<size_t> front = front_of(points);
  for (const size_t i : front) {
    const auto [time, memory] = points[i];
    if (i != front.front()) line.x.push_back(time), line.y.push_back(line.y.back());
    line.x.push_back(time), line.y.push_back(memory);
    plot.series.push_back({"front: " + names[i], {time}, {memory}, Series::Marks::Dots});
  }
  Series near{"other runs near (1, 1)", {}, {}, Series::Marks::Dots};
  for (size_t i = 0; i < points.size(); ++i) {
    const auto [time, memory] = points[i];
    if (std::count(front.begin(), front.end(), i)) continue;
    const bool close = std::abs(time - 1) < 0.2 && std::abs(memory - 1) < 0.2;
    Series& dots = close ? near : plot.series.emplace_back(Series{names[i], {}, {}, Series::Marks::Dots});
    dots.x.push_back(time), dots.y.push_back(memory);
  }
  plot.series.push_back(near);
  plot.series.push_back(line);
  write_file(path, draw(plot));
  std::cout << "figure of time and memory: " << path << "\n\n";
}

}  // namespace gradus
