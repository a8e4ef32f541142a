#include "lessons/22_scoreboard/scoreboard.h"

#include "src/core/timing.h"
#include "src/memory/device_timing.h"
#include "src/parallel/comm/cluster.h"

namespace gradus {

double relative_speed(const std::vector<double>& method, double method_tokens,
                      const std::vector<double>& base, double base_tokens) {
  // BEGIN SOLUTION 22.1
  const double per_second = method_tokens / summarize(method).median;
  return per_second / (base_tokens / summarize(base).median);
  // STUB: todo("22.1", "tokens per second of the method divided by those of the base run", method, method_tokens, base, base_tokens);
  // END SOLUTION 22.1
}

Scoreboard::Scoreboard(std::string common, int64_t steps, RunTrace* trace)
    : common_(std::move(common)), steps_(steps), text_(text_of(settings(""))), trace_(trace) {}

TrainSettings Scoreboard::settings(const std::string& flags) const {
  return settings_of(common_ + " " + flags);
}

int64_t Measured::peak() const { return at_peak.allocated() - at_peak[Kind::Workspace]; }

Measured Scoreboard::compare(const std::string& method, const std::string& base) const {
  const TrainSettings own = settings(method), others = settings(base);
  Timed m{own}, b{others};
  if (own.layout.ranks() == 1)
    time_on_one_device(m, b);
  else
    time_on_ranks(m, b);
  Measured measured{.at_peak = m.at_peak};
  measured.memory = double(measured.peak()) / double(Measured{.at_peak = b.at_peak}.peak());
  if (!current().device.has_data()) return measured;
  const auto tokens = [](const TrainSettings& s) { return double(s.batch * config_of(s).context); };
  measured.seconds = summarize(m.seconds).median;
  measured.speed = relative_speed(m.seconds, tokens(own), b.seconds, tokens(others));
  return measured;
}

struct Scoreboard::Run {
  Run(const Scoreboard& board, const TrainSettings& s)
      : context(current().device.name(), uint64_t(s.seed)), training(s, board.text_) {
    if (board.trace_) board.trace_->add(context, "run of the scoreboard");
    const int warm_up = s.calls == "each" ? 2 : 4;  // a captured step replays from the fourth on
    for (int i = 0; i < warm_up; ++i) training.step();
  }
  void step(Timed& timed) {
    context.make_current();
    const double begin = seconds_now(context.device);
    training.step();
    timed.seconds.push_back(seconds_now(context.device) - begin);
    timed.at_peak = context.device.meter().at_peak();
  }
  Context context;
  Training training;
};

void Scoreboard::time_on_one_device(Timed& method, Timed& base) const {
  Run b(*this, base.settings), m(*this, method.settings);
  for (int64_t i = 0; i < steps_; ++i) b.step(base), m.step(method);
}

// Simulated ranks compute one after the other, each on its own clock; the network takes no time. The two runs
// alternate as wholes.
void Scoreboard::time_on_ranks(Timed& method, Timed& base) const {
  const char* const device = current().device.name();
  for (int turn = 0; turn < 4; ++turn) {
    Timed& timed = turn % 2 == 0 ? base : method;
    const TrainSettings& s = timed.settings;
    run_cluster({.ranks = s.layout.ranks(), .device = device, .seed = uint64_t(s.seed)}, [&](Comm& comm) {
      Training training(s, text_, s.layout.ranks() > 1 ? &comm : nullptr);
      for (int64_t step = 0; step < 2 + (steps_ + 1) / 2; ++step) {
        const double begin = comm.seconds();
        training.step();
        if (step >= 2 && comm.rank() == 0) timed.seconds.push_back(comm.seconds() - begin);
      }
      const Usage at_peak = current().device.meter().at_peak();
      if (at_peak.allocated() > timed.at_peak.allocated()) timed.at_peak = at_peak;
    });
  }
}

}  // namespace gradus
