// The questions of 22.4: parameters and bytes of a run with the student's own numbers, measured by the
// trainer on meta.
#include <sstream>

#include "lessons/22_scoreboard/plan.h"
#include "lessons/22_scoreboard/scoreboard.h"
#include "src/parallel/comm/cluster.h"
#include "tests/course/predict.h"

namespace gradus::predict {

namespace {

struct OwnRun {
  int64_t layers, channels, rank, ranks;
  std::string model() const {
    return "--model=gpt-" + std::to_string(layers) + "x" + std::to_string(channels) +
           "x4 --context=32 --batch=8 --text-bytes=20000";
  }
};

OwnRun own_run(Own& own) {
  return {own.between(1, 6), 16 * own.between(2, 12), own.between(1, 8), own.of({2, 4, 8})};
}

// The result of f(training) after two steps on meta; it is the same on all ranks.
template <class F>
double after_two_steps(const OwnRun& run, const std::string& flags, F f) {
  const Scoreboard board(run.model(), 1);
  const TrainSettings s = board.settings(flags);
  double result = 0;
  run_cluster({.ranks = s.layout.ranks(), .device = "meta"}, [&](Comm& comm) {
    Training training(s, board.text(), s.layout.ranks() > 1 ? &comm : nullptr);
    training.step(), training.step();
    result = f(training);
  });
  return result;
}

double bytes_now(std::initializer_list<Kind> kinds) {
  const Usage now = current().device.meter().now();
  double bytes = 0;
  for (const Kind k : kinds) bytes += double(now[k]);
  return bytes;
}

constexpr auto kStates = {Kind::Weight, Kind::Master, Kind::Gradient, Kind::Optimizer};

}  // namespace

static Quiz quiz(const std::string& student) {
  Own own(student, "22.4");
  const OwnRun run = own_run(own);
  std::ostringstream setting;
  setting << "Your run has the flags " << run.model()
          << ": GPT-2's blocks, a vocabulary of 256 tokens, whose table is also the weight of the head, and "
             "32 positions.";
  const std::string lora = "--adapted=.*c_attn --lora=" + std::to_string(run.rank),
                    ranks = "--ranks=" + std::to_string(run.ranks);
  return {setting.str(),
          {{"22.4", "parameters", "how many parameters does the model have?", measured([=] {
              return after_two_steps(
                  run, "", [](Training& t) { return double(t.trained->model().parameters.numel()); });
            })},
           {"22.4", "mixed",
            "with --precision=mixed, how many bytes do weights, master copies, gradients and AdamW's states "
            "need?",
            measured([=] {
              return after_two_steps(run, "--precision=mixed", [](Training&) { return bytes_now(kStates); });
            })},
           {"22.4", "adapters", "how many parameters are trained with " + lora + "?", measured([=] {
              return after_two_steps(run, lora, [](Training& t) {
                return double(t.trained->model().parameters.numel_trainable());
              });
            })},
           {"22.4", "states", "with the same adapters, how many bytes do gradients and AdamW's states need?",
            measured([=] {
              return after_two_steps(run, lora, [](Training&) {
                return bytes_now({Kind::Gradient, Kind::Optimizer});
              });
            })},
           {"22.4", "rank", "with " + ranks + " --zero=1, how many bytes of AdamW's states does a rank keep?",
            measured([=] {
              return after_two_steps(run, ranks + " --zero=1",
                                     [](Training&) { return bytes_now({Kind::Optimizer}); });
            })}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "22", gradus::predict::quiz); }
