// Lesson 08, checkpointing. Of a block only its input is kept; the backward pass runs the block again, with
// the same random words, before it computes the block's gradients. Memory falls from all that the blocks save
// to their inputs and the tensors of one block, and the time grows by less than one forward pass.
//
// Memory of the activations, each of L blocks by itself: 4 B T (L C + 15 C + H T + 4) bytes.
//
//   make lesson-08                                                          expected last line: PASS
//   make lesson-08 ARGS="--memory=40MiB"                                    the fastest policy that fits
#include <cmath>
#include <iostream>
#include <optional>

#include "lessons/08_checkpointing/budget.h"
#include "lessons/08_checkpointing/chain.h"
#include "lessons/published/runs.h"
#include "src/core/table.h"
#include "src/data/dummy.h"
#include "src/optim/optimizer.h"
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
  StepRecorder recorder;
  std::vector<double> numbers;  // every loss, and the gradients of the last step
  int64_t saved = 0, most = 0;  // bytes of activations: after the forward pass, at any time
  int64_t flops = 0;            // of a step
};

static double median(const Run& run) { return summarize(run.recorder.seconds).median; }

static Run train(const Lesson& lesson, const Settings& set, const Policy& policy) {
  Device& device = current().device;
  Transformer model(set.model);
  model.initialize(lesson.seed);
  policy.apply(model);
  AdamW optimizer(model.parameters);
  Run run;
  for (int64_t step = 0; step < lesson.steps; ++step) {
    if (step == lesson.steps - 1) device.allocator().keep_history();
    device.meter().reset_work();
    run.recorder.begin();
    const DummyBatch batch = dummy_batch(set.model, set.batch, set.model.context, uint64_t(step + 1));
    Tape tape;
    const Tensor loss = batch.loss(model);
    if (step == 0 && lesson.print == "tape") tape.print(std::cout);
    run.saved = tape.saved_bytes();
    const double loss_value = item(loss);
    model.parameters.zero_grad();
    tape.backward(loss);
    run.flops = device.meter().flops();
    optimizer.step(1e-3);
    run.recorder.end(loss_value);
  }
  run.most = most_activations(device.allocator().history());
  run.numbers = run.recorder.losses;
  for (const Parameter& p : model.parameters)
    for (const double g : to_host<double>(p.leaf.grad)) run.numbers.push_back(g);
  return run;
}

// (a) The chain of the textbooks.
static void show_chain(Report& report) {
  std::cout << "(a) A chain of five steps\n\n";
  chain_by_hand(std::cout);
  report.check_equal("chain of 5, all kept: live values", live_values({5, {}}), 6);
  report.check_equal("chain of 5, from the start: live values", live_values({5, {}, true}), 4);
  report.check_equal("chain of 5, segments of 2 and 3: live values", live_values({5, {2, 3}}), 5);
  for (const int64_t n : {100, 400, 1600}) {
    const int64_t root = std::lround(std::sqrt(double(n)));
    report.check_equal("chain of " + std::to_string(n) + ", segments of its root: KiB of values",
                       activation_bytes({n, segments_of(n, root)}, 1024) / 1024, 2 * root - 1);
  }
}

// (b) Every policy that is asked for, trained; all are compared with the first.
static void compare_policies(const Lesson& lesson, const Settings& set, const std::vector<Policy>& wanted,
                             Report& report) {
  const Sizes sizes{set.model, set.batch, set.model.context};
  std::optional<Run> all;
  for (const Policy& p : wanted) {
    LessonContext context(lesson);
    const Run run = train(lesson, set, p);
    if (!all) all.emplace(run);
    ReportRow& row = report.row(p.name);
    run.recorder.fill(row, set.batch * set.model.context);
    row.extra = {{"activations MiB", double(run.most) / 0x1p20},
                 {"extra FLOPs", double(run.flops - all->flops) / double(all->flops)}};
    report.check_equal(p.name + ": bytes after the forward pass", run.saved, saved_bytes(p, sizes));
    report.check_equal(p.name + ": bytes of activations at the most", run.most, peak_activations(p, sizes));
    report.check_equal(p.name + ": FLOPs of what runs again", run.flops - all->flops, extra_flops(p, sizes));
    if (!context.device.has_data()) continue;
    row.extra.emplace_back("extra time", median(run) / median(*all) - 1);
    report.check_equal(p.name + ": numbers that are other bits", other_bits(run.numbers, all->numbers), 0);
  }
}

static int lesson_08(int argc, char** argv) {
  Lesson lesson(argc, argv, "08_checkpointing", "keep less for the backward pass, and run it again", 4);
  const std::string name = lesson.args.text(
      "policy", "", "only this one, beside store-all: selective, each-block, every-K, sqrt, from-the-start");
  lesson.done();
  if (lesson.print == "example") return chain_by_hand(std::cout), 0;
  LessonContext context(lesson, lesson.device, 0);
  const Settings set = std::string_view(context.device.name()) == "emu" ? for_emulation() : Settings();
  Report report = lesson.report();
  report.config(set.model, set.batch);
  report.config("steps", lesson.steps);
  const int64_t L = set.model.layers;
  if (!name.empty()) {
    compare_policies(lesson, set, {policies(L).front(), policy_by_name(name, L)}, report);
    return report.finish(lesson.json);
  }
  if (lesson.memory > 0) {
    compare_policies(lesson, set, {fastest_that_fits(set.model, set.batch, lesson.memory)}, report);
    return report.finish(lesson.json);
  }
  show_chain(report);
  compare_policies(lesson, set, policies(L), report);
  budgets_table(set.model, set.batch, report);
  std::cout << "\n(d) A published run\n\n" << published_checkpointing();
  return report.finish(lesson.json);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_08(argc, argv); });
}
