// Lesson 21, mixture of experts. Each transformer block has many MLPs, the experts, and a router chooses a
// few of them for each token. More experts mean more parameters, but hardly more FLOPs per token.
//
// A step takes 6 FLOPs per weight and row that it is multiplied by; an expert computes a row per place.
//
//   make lesson-21                                                          expected last line: PASS
#include <iostream>

#include "lessons/21_mixture_of_experts/kinds.h"
#include "lessons/21_mixture_of_experts/published.h"
#include "lessons/21_mixture_of_experts/ranks.h"
#include "lessons/21_mixture_of_experts/routing.h"
#include "lessons/21_mixture_of_experts/runs.h"
#include "src/core/progress.h"
#include "src/memory/device_timing.h"
#include "src/optim/optimizer.h"
#include "src/parallel/comm/cluster.h"
#include "src/train/lesson.h"
#include "src/train/text.h"

using namespace gradus;

constexpr int64_t kSteps = 3000, kEvaluations = 30;

// Falls linearly from 3e-3 to a tenth of it.
static double learning_rate(int64_t step, int64_t steps) {
  return 3e-3 * (1 - 0.9 * double(step) / double(steps));
}

static MixtureRun train(const std::string& name, Transformer& model, const Loader& loader, int64_t batch,
                        int64_t steps) {
  AdamW optimizer(model.parameters);
  Context& context = current();
  const int64_t T = model.config.context, every = std::max<int64_t>(steps / kEvaluations, 1);
  Tensor inputs(context.device, {batch, T}, DType::I32, Kind::Data, "inputs"),
      targets(context.device, {batch, T}, DType::I32, Kind::Data, "targets");
  MixtureRun run{name, model.config};
  Progress progress(name, steps);
  for (int64_t step = 0; step < steps; ++step) {
    const double begin = seconds_now(context.device);
    Meter& meter = context.device.meter();
    meter.reset_totals(), meter.reset_peak();
    read_batch(loader, step, inputs, targets);
    model.parameters.zero_grad();
    Tape tape;
    const Tensor loss = model.loss(inputs, targets);  // with the balance losses of a mixture's blocks
    tape.backward(loss);
    optimizer.step(learning_rate(step, steps));
    run.losses.push_back(item(loss));
    run.seconds.push_back(seconds_now(context.device) - begin);
    run.flops = meter.totals(OpClass::Contraction).flops, run.peak = meter.at_peak();
    progress.step(step + 1, run.losses.back());
    if (!context.device.has_data() || (step + 1 != steps && (step + 1) % every != 0)) continue;
    run.held_out.push_back(held_out_loss(model, loader, 32));
    run.held_out_at.push_back(double(step + 1));
  }
  progress.done();
  return run;
}

static int lesson_21(int argc, char** argv) {
  Lesson lesson(argc, argv, "21_mixture_of_experts",
                "mixture of experts: each token is computed by a few of many MLPs", kSteps);
  lesson.done({}, {lesson.plot("21_experts.svg"), lesson.plot("21_losses.svg")});
  if (lesson.print == "example") return routing_by_hand(std::cout), 0;
  LessonContext context(lesson);
  const bool small = context.device.name() == std::string("emu");
  const auto [mixture, dense_active, dense_total] = mixture_sizes(small);
  const int64_t batch = small ? 4 : 8, steps = lesson.steps;
  const KindsText text = text_of_kinds(small ? 20'000 : 250'000, lesson.seed);
  const Loader loader(text.corpus, mixture.context, lesson.seed);
  Report report = lesson.report();
  report.config(mixture, batch);
  report.config("steps", steps);
  report.config("experts", mixture.experts);
  report.config("experts per token", mixture.chosen);
  report.config("capacity factor", mixture.capacity_factor);
  report.config("alpha", mixture.balance);
  report.config("expert width", mixture.mlp_channels);

  std::vector<MixtureRun> runs;
  std::optional<RoutedText> routed;
  for (const auto& [name, config] :
       {std::pair<std::string, TransformerConfig>{"dense, active size", dense_active},
        {"mixture", mixture},
        {"dense, total size", dense_total}}) {
    Transformer model(config);
    model.initialize(lesson.seed);
    runs.push_back(train(name, model, loader, batch, steps));
    if (config.experts > 0 && context.device.has_data()) routed = route_held_out(model, text);
  }
  compare_runs(runs, batch, lesson.plot("21_losses.svg"), report);
  balance_table(report);
  if (routed) experts_table(*routed, text, mixture, lesson.plot("21_experts.svg"), report);
  ClusterArgs ranks{.device = context.device.name(), .seed = lesson.seed, .memory_budget = lesson.memory};
  ranks.made = lesson.traced_ranks();
  ranks_table(ranks, mixture, loader, batch, report);
  published_mixtures(report);
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_21(argc, argv); });
}
