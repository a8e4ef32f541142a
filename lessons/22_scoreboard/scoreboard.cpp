#include "lessons/22_scoreboard/scoreboard.h"

#include <algorithm>
#include <sstream>

#include "src/core/timing.h"
#include "src/memory/device_timing.h"
#include "src/parallel/comm/cluster.h"

namespace gradus {

double relative_speed(const std::vector<double>& method, double method_tokens,
                      const std::vector<double>& base, double base_tokens) {
  // BEGIN SOLUTION 22.1
  const double per_second = method_tokens / summarize(method).median;
  return per_second / (base_tokens / summarize(base).median);
  // STUB: todo("22.1", "tokens per second of the method, relative to the base run", method, method_tokens, base, base_tokens);
  // END SOLUTION 22.1
}

Scoreboard::Scoreboard(std::string common, int64_t steps)
    : common_(std::move(common)), steps_(steps), text_(text_of(settings(""))) {}

TrainSettings Scoreboard::settings(const std::string& flags) const {
  std::vector<std::string> words{"gradus"};
  int64_t ranks = 1;
  std::istringstream in(flags + " " + common_);
  for (std::string word; in >> word;) {
    const std::string name = word.substr(0, word.find('=') + 1);
    const bool given = std::any_of(words.begin(), words.end(), [&](auto& w) { return w.starts_with(name); });
    if (name == "--ranks=")
      ranks = std::stoll(word.substr(name.size()));
    else if (!given)  // a method's own come first
      words.push_back(word);
  }
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  Args args(int(pointers.size()), pointers.data(), "gradus", "a run of the scoreboard");
  const TrainSettings s = settings_of(args, ranks);
  args.done();
  return s;
}

Measured Scoreboard::compare(const std::string& method, const std::string& base) const {
  const TrainSettings m = settings(method), b = settings(base);
  return m.layout.ranks() == 1 ? on_one_device(m, b) : on_ranks(m, b);
}

static double tokens_of(const TrainSettings& s) { return double(s.batch * config_of(s).context); }

// The workspace of products is the same for all, and as large as a small model.
static int64_t without_workspace(const Usage& u) { return u.allocated() - u[Kind::Vendor]; }

struct Scoreboard::Run {
  Run(const TrainSettings& s, const Text& text)
      : context(current().device.name(), uint64_t(s.seed)), training(s, text) {
    const int warm_up = s.calls == "each" ? 2 : 4;  // a captured step replays from the fourth on
    for (int i = 0; i < warm_up; ++i) training.step();
  }
  void step() {
    context.make_current();
    const double begin = seconds_now(context.device);
    training.step();
    seconds.push_back(seconds_now(context.device) - begin);
  }
  int64_t peak() { return without_workspace(context.device.meter().at_peak()); }
  Context context;
  Training training;
  std::vector<double> seconds;
};

Measured Scoreboard::on_one_device(const TrainSettings& method, const TrainSettings& base) const {
  Run b(base, text_), m(method, text_);
  for (int64_t i = 0; i < steps_; ++i) b.step(), m.step();
  Measured measured{.peak = m.peak(), .memory = double(m.peak()) / double(b.peak())};
  if (!m.context.device.has_data()) return measured;
  measured.seconds = summarize(m.seconds).median;
  measured.speed = relative_speed(m.seconds, tokens_of(method), b.seconds, tokens_of(base));
  return measured;
}

// Simulated ranks compute in turns, each with a clock of its own; the network takes no time.
Measured Scoreboard::on_ranks(const TrainSettings& method, const TrainSettings& base) const {
  struct Ranks {
    const TrainSettings& settings;
    std::vector<double> seconds = {};
    int64_t peak = 0;
  } runs[] = {{base}, {method}};
  const char* const device = current().device.name();
  for (int turn = 0; turn < 4; ++turn) {
    auto& [s, seconds, peak] = runs[turn % 2];
    run_cluster({.ranks = s.layout.ranks(), .device = device, .seed = uint64_t(s.seed)}, [&](Comm& comm) {
      Training training(s, text_, s.layout.ranks() > 1 ? &comm : nullptr);
      for (int64_t step = 0; step < 2 + (steps_ + 1) / 2; ++step) {
        const double begin = comm.seconds();
        training.step();
        if (step >= 2 && comm.rank() == 0) seconds.push_back(comm.seconds() - begin);
      }
      peak = std::max(peak, without_workspace(current().device.meter().at_peak()));
    });
  }
  Measured measured{.peak = runs[1].peak, .memory = double(runs[1].peak) / double(runs[0].peak)};
  if (!current().device.has_data()) return measured;
  measured.seconds = summarize(runs[1].seconds).median;
  measured.speed = relative_speed(runs[1].seconds, tokens_of(method), runs[0].seconds, tokens_of(base));
  return measured;
}

}  // namespace gradus
