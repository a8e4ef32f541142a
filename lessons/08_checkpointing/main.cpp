// Lesson 08, activation checkpointing. A checkpointed segment of blocks saves only its input. The backward
// pass recomputes the segment, with the same random numbers for dropout, before it computes the segment's
// gradients. With one segment per block, the activations are the blocks' inputs and the saved tensors of one
// block, and the FLOPs of a step grow by less than one forward pass.
// Peak of activations with one segment per block: 4 B T (L C + 15 C + H T + 4) bytes.
//
//   make lesson-08                                                          expected last line: PASS
//   make lesson-08 ARGS="--memory=75MiB"                                    the fastest policy that fits
#include <cmath>
#include <iostream>
#include <optional>

#include "lessons/08_checkpointing/budget.h"
#include "lessons/08_checkpointing/chain.h"
#include "lessons/published/runs.h"
#include "src/optim/optimizer.h"
#include "src/train/dummy.h"
#include "src/train/lesson.h"
#include "src/train/step_recorder.h"

using namespace gradus;

struct Settings {
  TransformerConfig model{
      .vocab = 256, .context = 128, .layers = 8, .heads = 8, .channels = 128, .dropout = 0.1};
  int64_t batch = 4;
};
static Settings for_emulation() {
  Settings set{.batch = 1};
  set.model.context = 8, set.model.layers = 3, set.model.heads = 2, set.model.channels = 16;
  return set;
}

struct Run {
  ReportRow row;
  double fastest = INFINITY;  // seconds of the fastest step
  PolicyRun measured;
};

static Run train(const Lesson& lesson, const Settings& set, const Policy& policy) {
  Device& device = current().device;
  Transformer model(set.model);
  model.initialize(lesson.seed);
  policy.apply(model);
  AdamW optimizer(model.parameters);
  StepRecorder recorder;
  Run run;
  for (int64_t step = 0; step < lesson.steps; ++step) {
    if (step == lesson.steps - 1) device.allocator().keep_history();
    device.meter().reset_totals();
    recorder.begin();
    const DummyBatch batch = dummy_batch(set.model, set.batch, set.model.context, uint64_t(step + 1));
    Tape tape;
    const Tensor loss = batch.loss(model);
    run.measured.counted.saved = tape.saved_bytes();
    const double loss_value = item(loss);
    model.parameters.zero_grad();
    tape.backward(loss);
    run.measured.counted.flops = device.meter().flops();
    optimizer.step(1e-3);
    recorder.end(loss_value);
  }
  run.measured.counted.most = most_activations(device.allocator().history());
  recorder.fill(run.row, set.batch * set.model.context);
  run.fastest = summarize(recorder.seconds).min;
  run.measured.losses = recorder.losses;
  for (const Parameter& p : model.parameters)
    for (const double g : to_host<double>(p.leaf.grad)) run.measured.gradients.push_back(g);
  return run;
}

// Alternating runs (A B A B A B). The fastest step of each policy counts, because other programs slow a
// shared machine down at times.
static std::vector<Run> train_alternating(const Lesson& lesson, const Settings& set,
                                          const std::vector<Policy>& wanted) {
  std::vector<Run> runs(wanted.size());
  for (int round = 0; round < 3; ++round)
    for (size_t i = 0; i < wanted.size(); ++i) {
      const LessonContext context(lesson, lesson.device, i + 1 == wanted.size() ? lesson.memory : 0);
      const double fastest = runs[i].fastest;
      runs[i] = train(lesson, set, wanted[i]);
      runs[i].fastest = std::min(runs[i].fastest, fastest);
    }
  return runs;
}

// Losses and gradients of all policies must be bitwise equal to the first one's. Returns the seconds per
// step.
static std::vector<double> compare(const Lesson& lesson, const Settings& set,
                                   const std::vector<Policy>& wanted, Report& report) {
  const Sizes sizes{set.model, set.batch, set.model.context};
  const int64_t store_all = count_on_meta(set.model, set.batch, policies(set.model.layers).front()).flops;
  const std::vector<Run> runs = train_alternating(lesson, set, wanted);
  std::vector<double> seconds;
  for (size_t i = 0; i < runs.size(); ++i) {
    const Policy& p = wanted[i];
    const Run& run = runs[i];
    seconds.push_back(run.fastest);
    ReportRow& row = report.row(p.name);
    row = run.row, row.name = p.name;
    const int64_t recomputed = run.measured.counted.flops - store_all;
    row.extra = {{"peak of activations, MiB", double(run.measured.counted.most) / 0x1p20},
                 {"extra FLOPs, %", 100 * double(recomputed) / double(store_all)}};
    const bool on_meta = lesson.device == "meta";
    if (on_meta)
      row.ms_per_step = row.tokens_per_s = std::nullopt;  // meta computes nothing
    else {
      row.ms_per_step = 1e3 * run.fastest;
      row.tokens_per_s = double(set.batch * set.model.context) / run.fastest;
      row.extra.emplace_back("extra time, %", 100 * (seconds.back() / seconds.front() - 1));
    }
    const char* const skip = on_meta ? "no data" : i == 0 ? "the reference" : "";
    check_policy(p, run.measured, recomputed, runs.front().measured, sizes, skip, report);
  }
  return seconds;
}

static int lesson_08(int argc, char** argv) {
  Lesson lesson(argc, argv, "08_checkpointing", "recompute activations instead of saving them", 8);
  const std::string name = lesson.args.text(
      "policy", "", "run only store-all and this: selective, each-block, every-K, sqrt, from-the-start");
  const double dropout = lesson.args.number("dropout", 0.1, "probability of dropout", 0, 0.9);
  const std::string times = lesson.plot("08_policies.svg"), flops = lesson.plot("08_flops.svg");
  lesson.done({}, {times, flops});
  if (lesson.print == "example") return chain_by_hand(std::cout), 0;
  LessonContext context(lesson, lesson.device, 0);
  Settings set = std::string_view(context.device.name()) == "emu" ? for_emulation() : Settings();
  set.model.dropout = dropout;
  std::vector<Policy> wanted = policies(set.model.layers);
  if (!name.empty()) wanted = {wanted.front(), policy_by_name(name, set.model.layers)};
  if (name.empty() && lesson.memory > 0) wanted = {fastest_that_fits(set.model, set.batch, lesson.memory)};
  if (lesson.print == "tape")
    for (const Policy& p : wanted) print_tape(std::cout, set.model, set.batch, p);
  Report report = lesson.report();
  report.config(set.model, set.batch);
  report.config("steps", lesson.steps);
  const bool whole = name.empty() && lesson.memory == 0;
  if (whole) chain_table(report);
  const std::vector<double> seconds = compare(lesson, set, wanted, report);
  if (whole) {
    budgets_table(choose_for_budgets(set.model, set.batch), report);
    report_published("(c) Published run: BERT-large with checkpointing", published_checkpointing(), report);
    if (context.device.has_data()) draw_policies(times, flops, set.model, set.batch, seconds);
  }
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_08(argc, argv); });
}
