// Lesson 06, optimizers. An optimizer turns a gradient into an update of the weights. Its state is what it
// keeps between two updates: SGD keeps nothing, momentum one number per parameter, AdamW two, Adafactor far
// less than one, Muon one per parameter of its matrices. Each trains with four learning rates on the same
// text, and then with two more seeds at its best rate.
//
// State bytes of a matrix (out, in) in fp32: 0, 4 out in, 8 out in, 4 (out + in), 4 out in.
//
//   make lesson-06                                                          expected last line: PASS
#include <cmath>
#include <iostream>

#include "lessons/06_optimizers/by_hand.h"
#include "lessons/06_optimizers/contenders.h"
#include "lessons/06_optimizers/update_time.h"
#include "lessons/published/runs.h"
#include "src/core/progress.h"
#include "src/core/table.h"
#include "src/train/race.h"
#include "src/train/text.h"

using namespace gradus;

constexpr int64_t kSteps = 200;
struct Settings {
  TransformerConfig model{
      .vocab = ByteTokenizer::kVocabulary, .context = 64, .layers = 2, .heads = 4, .channels = 64};
  int64_t batch = 8, text_bytes = 600'000;
  double max_norm = 1.0;
  int rates = kRates, seeds = 3;
};
static Settings for_emulation() {
  Settings set{.batch = 2, .text_bytes = 60'000, .rates = 1, .seeds = 1};
  set.model.context = 16, set.model.layers = 1, set.model.channels = 16;
  return set;
}

static int64_t warmup(const Lesson& lesson) { return lesson.steps / 10; }

// One run. The seed draws the first weights and the batches, so both are the same for all optimizers.
static Trial train(const Lesson& lesson, const Settings& set, const Corpus& corpus, const Contender& who,
                   double rate, uint64_t seed) {
  LessonContext context(lesson);
  const Loader loader(corpus, set.model.context, seed);
  Transformer model(set.model);
  model.initialize(seed);
  const std::unique_ptr<Optimizer> optimizer = who.make(model.parameters);
  const int64_t bytes = state_bytes(who.name, model.parameters);  // as predicted
  const Shape batch{set.batch, set.model.context};
  Tensor inputs(context.device, batch, DType::I32, Kind::Data, "inputs"),
      targets(context.device, batch, DType::I32, Kind::Data, "targets");
  StepRecorder recorder;
  for (int64_t step = 0; step < lesson.steps; ++step) {
    recorder.begin();
    read_batch(loader, step, inputs, targets);
    Tape tape;
    const Tensor loss = model.loss(inputs, targets);
    if (step == 0 && lesson.print == "tape" && who.name == "SGD" && rate == who.rate && seed == lesson.seed)
      tape.print(std::cout);
    const double loss_value = item(loss);
    model.parameters.zero_grad();
    tape.backward(loss);
    optimizer->clip_grad_norm(set.max_norm);
    context.device.meter().reset_totals();
    optimizer->step(warmup_cosine(step, warmup(lesson), lesson.steps, rate, rate / 10));
    recorder.end(loss_value);
  }
  Trial trial{rate, recorder.losses, recorder.seconds, {}, bytes};
  recorder.fill(trial.row, batch.numel());
  trial.row.model_flops = set.model.flops_per_token() * batch.numel();
  const int64_t products = context.device.meter().totals(OpClass::Contraction).flops;  // of the last update
  trial.row.extra = {{"learning rate", rate}, {"GFLOP/update", double(products) * 1e-9}};
  if (context.device.has_data())
    trial.row.loss_last = smooth(recorder.losses).back();
  else
    trial.row.ms_per_step = trial.row.tokens_per_s = std::nullopt;  // nothing was computed
  return trial;
}

// (a) Each optimizer with each rate, then its best rate with the other seeds.
static std::vector<Result> race(const Lesson& lesson, const Settings& set, const Corpus& corpus) {
  std::vector<Result> results;
  Progress progress("runs", int64_t(contenders().size()) * (set.rates + set.seeds - 1));
  int64_t done = 0;
  for (const Contender& who : contenders()) {
    Result& result = results.emplace_back(Result{who.name, {}});
    const auto run = [&](std::vector<Trial>& runs, double rate, uint64_t seed) {
      runs.push_back(train(lesson, set, corpus, who, rate, seed));
      progress.step(++done, runs.back().losses.back());
    };
    for (int i = 0; i < set.rates; ++i)
      run(result.trials, set.rates > 1 ? who.rate * std::pow(3.0, i - 1) : who.rate, lesson.seed);
    const double best = result.best().rate;
    for (int k = 1; k < set.seeds; ++k) run(result.repeats, best, lesson.seed + uint64_t(k));
  }
  return results;
}

static void describe(Report& report, const Lesson& lesson, const Settings& set,
                     const std::vector<Result>& results) {
  report.config(set.model, set.batch);
  report.config("steps", lesson.steps);
  report.config("weight_decay", int64_t(0));
  if (set.seeds > 1) report.config("last_loss", "mean of " + std::to_string(set.seeds) + " seeds");
  for (const Result& r : results) {
    ReportRow& row = report.row(r.name);
    row = r.table_row();
    if (set.seeds == 1) continue;
    const Spread last = r.last_losses();
    row.loss_last = last.mean;
    row.extra.insert(row.extra.begin(), {{"min of seeds", last.least}, {"max of seeds", last.most}});
  }
  // The rates were chosen for this number of steps.
  check_results(results, lesson.steps,
                set.rates > 1 ? is_for_steps(kSteps, lesson.steps) : "is for a sweep of rates", report);
}

static int lesson_06(int argc, char** argv) {
  Lesson lesson(argc, argv, "06_optimizers",
                "optimizers: the bytes of their states, and the loss that they reach", kSteps);
  std::vector<std::string> pictures;
  if (lesson.device != "meta") pictures = {lesson.plot("06_steps.svg"), lesson.plot("06_time.svg")};
  lesson.done({}, pictures);
  if (lesson.print == "example") return optimizers_by_hand(std::cout), 0;
  LessonContext context(lesson);
  Settings set = std::string_view(context.device.name()) == "emu" ? for_emulation() : Settings();
  if (!context.device.has_data()) set.rates = 1;
  if (!context.device.has_data() || lesson.steps != kSteps) set.seeds = 1;
  const Text text = load_text("", set.text_bytes, lesson.seed);
  const Loader loader(text.corpus, set.model.context, lesson.seed);
  print_sizes(text.corpus, loader);

  Report report = lesson.report();
  const std::vector<Result> results = race(lesson, set, text.corpus);
  describe(report, lesson, set, results);
  if (set.rates > 1) print_sweep(results);
  if (context.device.has_data()) {
    print_race(results, set.model.parameter_count());
    draw_race(lesson, results, warmup(lesson));
  }
  update_time_table(report);
  report_published("(c) A published run", published_adafactor(), report);
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_06(argc, argv); });
}
