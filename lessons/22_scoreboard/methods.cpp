#include "lessons/22_scoreboard/methods.h"

#include <algorithm>
#include <iostream>
#include <sstream>

#include "src/core/table.h"
#include "src/core/timing.h"
#include "src/io/atomic_file.h"
#include "src/io/plot.h"
#include "src/memory/device_timing.h"
#include "src/parallel/comm/cluster.h"

namespace gradus {

const std::vector<Method>& published_methods() {
  using enum Claim;
  static const std::vector<Method> all{
      {"smaller batch", "--batch=4", No, Yes, true, ""},
      {"larger batch", "--batch=64", Yes, No, false, ""},
      {"gradient accumulation", "--micro-batches=4", No, Yes, true, ""},
      {"gradient checkpointing", "--keep=each-block", No, Yes, true, ""},
      {"mixed precision", "--precision=mixed", Yes, Maybe, true, ""},
      {"mixed precision, small batch", "--precision=mixed --batch=1", Yes, Maybe, false, "--batch=1"},
      {"empty cache every step", "--empty-every=1", No, Yes, false, "",
       "sizes repeat: the next step uses what is cached"},
      {"optimizer: Adafactor", "--optimizer=adafactor", Yes, Yes, true, ""},
      {"data preloading", "--workers=1", Yes, No, false, "", "cutting bytes into windows takes no time"},
      {"ZeRO-3, 4 ranks", "--ranks=4 --zero=3", No, Yes, true, "--ranks=4 --zero=0"},
      {"compile", "--calls=compiled", Yes, No, false, ""},
      {"PEFT: LoRA, rank 8", "--lora=8", No, Yes, true, "",
       "frozen weights have no gradient to compute, and no update"},
  };
  return all;
}

const std::vector<Method>& course_methods() {
  using enum Claim;
  static const std::vector<Method> all{
      {"flash attention", "--attention=flash", None, None, true, ""},
      {"fused head, vocabulary 8192", "--loss-rows=128 --vocab=8192", None, None, true, "--vocab=8192"},
      {"captured step", "--calls=captured", None, None, false, ""},
      {"8-bit AdamW", "--optimizer=adamw8bit", None, None, true, ""},
      {"QLoRA, rank 8", "--lora=8 --frozen=4-bits", None, None, true, ""},
      {"tensor parallel, 2 ranks", "--ranks=2 --tensor-ranks=2", None, None, true, ""},
      {"pipeline, 2 ranks", "--ranks=2 --pipeline-ranks=2 --micro-batches=4", None, None, true, ""},
      {"same result, least memory",
       "--micro-batches=16 --keep=from-the-start --attention=flash --loss-rows=128", None, None, true, ""},
      {"flash, compiled", "--attention=flash --calls=compiled", None, None, true, ""},
      {"mixed, 8 bits, flash", "--precision=mixed --optimizer=adamw8bit --attention=flash", None, None, true,
       ""},
      {"all together",
       "--precision=mixed --optimizer=adamw8bit --attention=flash --micro-batches=16 --keep=each-block "
       "--loss-rows=128",
       None, None, true, ""},
  };
  return all;
}

Scoreboard::Scoreboard(std::string common, int64_t steps)
    : common_(std::move(common)), steps_(steps), text_(text_of(settings(""))) {}

TrainSettings Scoreboard::settings(const std::string& flags) const {
  std::istringstream in(flags + " " + common_);
  std::vector<std::string> words{"gradus"};
  int64_t ranks = 1;
  for (std::string word; in >> word;) {
    const std::string name = word.substr(0, word.find('=') + 1);
    if (name == "--ranks=") ranks = std::stoll(word.substr(name.size()));
    const bool given = std::any_of(words.begin(), words.end(), [&](auto& w) { return w.starts_with(name); });
    if (!given && name != "--ranks=") words.push_back(word);
  }
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  Args args(int(pointers.size()), pointers.data(), "gradus", "a method of the scoreboard");
  const TrainSettings s = settings_of(args, ranks);
  args.done();
  return s;
}

struct Scoreboard::Run {
  Run(const TrainSettings& s, const Text& text)
      : context(current().device.name(), uint64_t(s.seed)), training(s, text) {
    for (int i = 0; i < 4; ++i) training.step();  // captured steps replay from the fourth on
  }
  void step() {
    context.make_current();
    const double begin = seconds_now(context.device);
    training.step();
    seconds.push_back(seconds_now(context.device) - begin);
  }
  Context context;
  Training training;
  std::vector<double> seconds;
};

static double tokens(const TrainSettings& s) { return double(s.batch * config_of(s).context); }

// A B A B, so that both meet the same noise of the machine.
Measured Scoreboard::alternate(const TrainSettings& method, const TrainSettings& against) const {
  Run base(against, text_), run(method, text_);
  for (int64_t i = 0; i < steps_; ++i) base.step(), run.step();
  const Meter &m = run.context.device.meter(), &b = base.context.device.meter();
  Measured measured{.peak = m.at_peak().allocated(), .reserved = m.peak_reserved()};
  measured.memory = double(measured.peak) / double(b.at_peak().allocated());
  if (!run.context.device.has_data()) return measured;
  measured.seconds = summarize(run.seconds).median;
  measured.speed = tokens(method) / measured.seconds * summarize(base.seconds).median / tokens(against);
  return measured;
}

// Ranks take turns on this machine, each with a clock of its own; the network takes no time.
Measured Scoreboard::on_ranks(const TrainSettings& method, const TrainSettings& against) const {
  struct Ranks {
    std::vector<double> seconds;
    int64_t peak = 0, reserved = 0;
  } runs[2];
  const TrainSettings* const settings[] = {&method, &against};
  for (int64_t i = 0; i < std::min<int64_t>(2 * steps_, 4); ++i) {
    const TrainSettings& s = *settings[i % 2];
    Ranks& r = runs[i % 2];
    run_cluster({.ranks = s.layout.ranks(), .device = current().device.name(), .seed = uint64_t(s.seed)},
                [&](Comm& comm) {
                  Training training(s, text_, s.layout.ranks() > 1 ? &comm : nullptr);
                  for (int64_t step = 0; step < 2 + (steps_ + 1) / 2; ++step) {
                    const double begin = comm.seconds();
                    training.step();
                    if (step >= 2 && comm.rank() == 0) r.seconds.push_back(comm.seconds() - begin);
                  }
                  const Meter& m = current().device.meter();
                  r.peak = std::max(r.peak, m.at_peak().allocated());
                  r.reserved = std::max(r.reserved, m.peak_reserved());
                });
  }
  Measured measured{.peak = runs[0].peak, .reserved = runs[0].reserved};
  measured.memory = double(runs[0].peak) / double(runs[1].peak);
  if (!current().device.has_data()) return measured;
  measured.seconds = summarize(runs[0].seconds).median;
  measured.speed = tokens(method) / measured.seconds * summarize(runs[1].seconds).median / tokens(against);
  return measured;
}

Measured Scoreboard::measure(const Method& m) {
  const TrainSettings method = settings(m.flags), against = settings(m.against);
  return method.layout.ranks() == 1 ? alternate(method, against) : on_ranks(method, against);
}

std::string text_of(Claim claim) {
  constexpr const char* kWords[] = {"-", "no", "yes", "maybe"};
  return kWords[size_t(claim)];
}

// Within 3 % a time is noise on a shared machine.
static std::string agreement(const Method& m, const Measured& r) {
  if (m.faster == Claim::None) return "";
  std::string text;
  const auto say = [&](const char* what, Claim published, bool ours) {
    if (published == Claim::Maybe || (published == Claim::Yes) == ours) return;
    text += (text.empty() ? "" : ", ") + std::string(what) + (ours ? " here" : " not here");
  };
  if (!std::isnan(r.speed)) say("faster", m.faster, r.speed > 1.03);
  say("less memory", m.less_memory, r.memory < 1);
  return text.empty() ? "agrees" : text + (m.why.empty() ? "" : ": " + m.why);
}

void print_methods(const std::vector<Method>& methods, const std::vector<Measured>& measured) {
  const bool published = methods.front().faster != Claim::None;
  std::vector<std::string> header{"method", "ms per step", "tokens/s, relative", "peak", "peak, relative"};
  if (published)
    for (const char* name : {"published: faster", "less memory", "ours"}) header.emplace_back(name);
  Table table(header);
  for (size_t i = 0; i < methods.size(); ++i) {
    const Measured& r = measured[i];
    std::vector<std::string> cells{
        methods[i].name, std::isnan(r.seconds) ? "-" : number_text(r.seconds * 1e3),
        std::isnan(r.speed) ? "-" : number_text(r.speed), bytes_text(r.peak), number_text(r.memory)};
    if (published) {
      cells.push_back(text_of(methods[i].faster));
      cells.push_back(text_of(methods[i].less_memory));
      cells.push_back(agreement(methods[i], r));
    }
    table.row(cells);
  }
  std::cout << table << "\n";
}

void draw_methods(const std::vector<Method>& methods, const std::vector<Measured>& measured,
                  const std::string& path) {
  LinePlot plot{"Time and memory of each method",
                "time per token, relative to the plain run",
                "peak memory, relative to the plain run",
                {},
                {}};
  std::vector<std::pair<double, double>> points{{1, 1}};
  for (size_t i = 0; i < methods.size(); ++i) {
    points.emplace_back(1 / measured[i].speed, measured[i].memory);
    plot.series.push_back(
        {methods[i].name, {points.back().first}, {points.back().second}, Series::Marks::Dots});
  }
  std::sort(points.begin(), points.end());
  Series front{"front", {}, {}, Series::Marks::Line};
  for (const auto& [time, memory] : points)
    if (front.y.empty() || memory < front.y.back()) front.x.push_back(time), front.y.push_back(memory);
  plot.series.push_back(front);
  write_file(path, draw(plot));
}

}  // namespace gradus
