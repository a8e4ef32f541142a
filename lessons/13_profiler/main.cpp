// Lesson 13, the profiler. Each op, layer and pass of a step is a range with a name. A profiler records
// ranges and kernels as a trace: when each ran, how many bytes were alive, and which op a backward kernel
// belongs to. Here three bottlenecks make a loop slow. The program finds each of them in the trace file alone
// and fixes it, the one with the largest predicted saving first.
//
// A kernel needs at least max(FLOPs / peak, bytes / bandwidth) seconds: the roofline.
//
//   make lesson-13                                                          expected last line: PASS
//   build/lessons/03_transformer --steps=20 --trace=03.json                 a trace of any lesson
#include <algorithm>
#include <iostream>

#include "lessons/13_profiler/by_hand.h"
#include "lessons/13_profiler/costs.h"
#include "src/io/atomic_file.h"
#include "src/optim/optimizer.h"
#include "src/train/step_recorder.h"

using namespace gradus;

struct Settings {
  TransformerConfig model{
      .vocab = ByteTokenizer::kVocabulary, .context = 64, .layers = 4, .heads = 4, .channels = 128};
  int64_t batch = 8, text_bytes = 100'000, timed_repeats = 5;
};
static Settings for_emulation() {
  Settings set{.batch = 2, .timed_repeats = 1};
  set.model.context = 16, set.model.layers = 2, set.model.channels = 32;
  return set;
}

// Skips one step, warms up for one step, and records the next ten. With fewer steps, at least the last is
// recorded.
static ProfileSchedule schedule_of(int64_t steps) {
  const int64_t wait = steps > 2, warm_up = steps > 1;
  return {wait, warm_up, std::min<int64_t>(steps - wait - warm_up, 10)};
}

static LoopRun train(const Lesson& lesson, const Settings& set, const Text& text, const Plants& plants,
                     const Machine* machine, const std::string& trace) {
  LessonContext context(lesson);
  TransformerConfig config = set.model;
  if (plants.unfused_gelu) config.activation = unfused_gelu;
  Transformer model(config);
  model.initialize(lesson.seed);
  AdamW optimizer(model.parameters);
  const Loader loader(text.corpus, config.context, lesson.seed);
  Tensor inputs(context.device, {set.batch, config.context}, DType::I32, Kind::Data, "inputs");
  Tensor targets(context.device, {set.batch, config.context}, DType::I32, Kind::Data, "targets");
  Profiler profiler(context, schedule_of(lesson.steps));
  StepRecorder recorder;
  std::vector<float> host;
  for (int64_t step = 0; step < lesson.steps; ++step) {
    if (machine) profiler.next_step();
    recorder.begin();
    if (plants.reloads_text)
      load_and_read(set.text_bytes, lesson.seed, step, inputs, targets);
    else
      read_batch(loader, step, inputs, targets);
    Tape tape;
    const Tensor loss = model.loss(inputs, targets);
    if (step == 0 && lesson.print == "tape" && machine && plants == Plants{}) tape.print(std::cout);
    const double loss_value = item(loss);
    model.parameters.zero_grad();
    tape.backward(loss);
    if (plants.watches_gradients) largest_gradient(model.parameters, host);
    optimizer.clip_grad_norm(1.0);
    optimizer.step(1e-3);
    recorder.end(loss_value);
  }
  if (!machine) return {recorder.losses, recorder.seconds, {}, {}, {}};
  profiler.end();
  write_trace(trace, {{"training", &profiler}});
  return {recorder.losses, recorder.seconds, read_steps(trace), by_kernel(profiler, *machine),
          by_op(profiler, *machine)};
}

static int lesson_13(int argc, char** argv) {
  Lesson lesson(argc, argv, "13_profiler", "why a training step is slow: bottlenecks found in its trace", 12);
  const std::string picture = lesson.device == "meta" ? "" : lesson.plot("13_roofline.svg");
  const auto trace = [&](size_t round) { return lesson.plot("13_round_" + std::to_string(round) + ".json"); };
  lesson.done({}, {picture, trace(1)});
  if (lesson.print == "example") return profile_by_hand(std::cout), 0;
  LessonContext context(lesson);
  const Settings set = std::string_view(context.device.name()) == "emu" ? for_emulation() : Settings();
  const Text text = load_text("", set.text_bytes, lesson.seed);
  const Machine machine = measured_machine(context.device);
  Report report = lesson.report();
  report.config(set.model, set.batch);
  report.config("steps", lesson.steps);
  size_t profiled_runs = 0;
  const std::vector<Round> rounds = search(
      [&](const Plants& plants, bool profiled) {
        return train(lesson, set, text, plants, profiled ? &machine : nullptr,
                     profiled ? trace(++profiled_runs) : "");
      },
      set.timed_repeats);
  report_rounds(rounds, set.model, set.batch * set.model.context, report);
  report_costs(rounds.back(), machine, report);
  if (!picture.empty())
    write_file(picture, draw(roofline_of("Roofline of the kernels of a training step",
                                         rounds.back().run.kernels, machine)));
  std::cout << "\nTraces, to open in https://ui.perfetto.dev: " << trace(1) << " to " << trace(profiled_runs)
            << "\n";
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_13(argc, argv); });
}
