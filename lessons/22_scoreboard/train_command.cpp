#include <csignal>
#include <filesystem>
#include <iostream>

#include "lessons/22_scoreboard/commands.h"
#include "lessons/22_scoreboard/curves.h"
#include "lessons/22_scoreboard/plan.h"
#include "src/io/atomic_file.h"
#include "src/train/report.h"
#include "src/train/run_trace.h"

namespace gradus {

namespace {

struct TrainOptions : TrainFiles {
  std::string expected, json, trace;
};

TrainOptions options_of(Args& args, const RunFlags& flags) {
  TrainOptions o;
  o.save = args.text("save", "", "file of the run, to go on from");
  o.save_every = args.integer("save-every", 100, "save after so many steps", 1, 1 << 30);
  o.curve = args.text("curve", "", "a line of JSON for each step");
  o.expected =
      args.text("expected", "", "a curve to compare with: lessons/22_scoreboard/curves/gpt.jsonl, ...");
  o.json = args.text("json", "", "also write the report to this file");
  o.trace = args.text("trace", "", "what ran when, for ui.perfetto.dev (slower)");
  args.done();
  check(o.save.empty() || o.save == flags.load || !std::filesystem::exists(o.save), "--save=", o.save,
        " is there already; --load=", o.save, " goes on with it, or remove it to begin anew");
  check(o.save.empty() || flags.device != "meta", "--save: the device meta computes no numbers");
  if (this_rank(flags.ranks) > 0) o.json.clear(), o.trace.clear();  // the first one writes
  // What cannot be written is refused now, and not after the work.
  if (this_rank(flags.ranks) == 0)
    for (const std::string& path : {o.save, o.curve, o.json, o.trace})
      if (!path.empty()) AtomicFile{path};
  return o;
}

void check_expected(const std::vector<double>& losses, int64_t first,
                    const std::vector<ExpectedLoss>& expected, Report& report) {
  const CurveVerdict verdict = compare_curve(losses, first, expected);
  const std::string picture = "build/plots/22_curve.svg";
  make_folder_of(picture);
  draw_curve(losses, first, expected, picture);
  std::cout << "this run's loss, and what is expected: " << picture << "\n";
  report.check_equal(
      "parts of the run with another loss than expected, of " + std::to_string(verdict.compared),
      verdict.outside, 0,
      verdict.compared > 0 ? "" : "the first part ends at step " + std::to_string(expected[0].step));
}

// Returns the exit code.
int report_run(Training& training, const StepRecorder& recorder, const std::vector<ExpectedLoss>& expected,
               const std::string& json) {
  const TrainSettings& s = training.settings;
  Report report("gradus train", current().device);
  report.config(training.trained->model().config, s.batch);
  report.config("steps", training.steps());
  if (!recorder.losses.empty()) {
    ReportRow& row = report.row(s.model);
    recorder.fill(row, s.batch * training.trained->model().config.context);
    if (!training.ranks && current().device.has_data()) row.loss_held_out = training.held_out();
    report.check_at_most("the loss of the last step is a number", recorder.losses.back(), INFINITY);
    if (!expected.empty())
      check_expected(recorder.losses, training.steps() - int64_t(recorder.losses.size()), expected, report);
  }
  return report.finish(json);
}

}  // namespace

int gradus_train(Args& args) {
  RunFlags flags(args);
  const TrainOptions options = options_of(args, flags);
  std::vector<ExpectedLoss> expected;
  if (!options.expected.empty()) expected = read_expected(options.expected);
  const Text text = text_of(flags.settings);
  if (flags.settings.keep == "auto") {
    choose_policy(flags.settings, text, flags.memory);
    std::cout << "--keep=" << flags.settings.keep << " fits\n";
  }
  const StopSignals signals;
  std::optional<RunTrace> trace;
  if (!options.trace.empty()) trace.emplace(options.trace);
  int code = 0;
  bool stopped = false;
  const auto run = [&](Comm* comm) {
    Training training(flags.settings, text, comm);
    if (!flags.load.empty()) training.load(flags.load);
    if (training.steps() >= flags.settings.steps && (!comm || comm->rank() == 0))
      std::cout << flags.load << " has made " << training.steps()
                << " steps; with --steps=" << flags.settings.steps << " none is left\n";
    const StepRecorder recorder = train(training, options);
    stopped = training.steps() < flags.settings.steps;
    if (!stopped && (!comm || comm->rank() == 0))
      code = report_run(training, recorder, expected, options.json);
  };
  if (flags.ranks.ranks > 1) {
    flags.ranks.made = [&](int64_t rank, Context& context) {
      if (trace) trace->add(context, "rank " + std::to_string(rank));
    };
    run_ranks(flags.ranks, [&](Comm& comm) { run(&comm); });
  } else {
    Context context(flags.device, uint64_t(flags.settings.seed), flags.memory);
    if (trace) trace->add(context, context.device.name());
    run(nullptr);
  }
  if (trace) trace->write();
  if (!stopped) return code;
  if (this_rank(flags.ranks) == 0)
    std::cerr << "stopped by a signal; "
              << (options.save.empty() ? "nothing is saved, for want of --save=FILE"
                                       : "--load=" + options.save + " goes on from there")
              << std::endl;
  return 128 + (StopSignals::received() > 0 ? StopSignals::received() : SIGTERM);  // another process got it
}

}  // namespace gradus
