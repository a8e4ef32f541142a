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
  o.save = args.text("save", "", "file for the run, from which --load resumes it");
  o.save_every = args.integer("save-every", 100, "steps between two saves", 1, 1 << 30);
  o.curve = args.text("curve", "", "file for the loss curve, one line of JSON per step");
  o.expected = args.text("expected", "",
                         "expected loss curve to compare with: lessons/22_scoreboard/curves/gpt.jsonl, ...");
  o.json = args.text("json", "", "also write the report to this file");
  o.trace = args.text("trace", "", "also write a trace of all operations, for ui.perfetto.dev (slower)");
  args.done();
  check(o.save.empty() || o.save == flags.load || !std::filesystem::exists(o.save), "--save=", o.save,
        ": the file exists; --load=", o.save, " resumes it, or remove it to start a new run");
  check(o.save.empty() || flags.device != "meta", "--save: the device meta computes no numbers");
  if (this_rank(flags.ranks) > 0) o.json.clear(), o.trace.clear();  // only rank 0 writes files
  // A file that cannot be written is an error now, and not after the training.
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
  std::cout << "figure of the loss and the expected range: " << picture << "\n";
  check_curve(verdict, expected[0].step, report);
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
    check_last_loss(recorder.losses.back(), report);
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
    std::cout << "--keep=auto: the fastest policy that fits is " << flags.settings.keep << "\n";
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
      std::cout << flags.load << " has already made " << training.steps()
                << " steps, so --steps=" << flags.settings.steps << " leaves none to do\n";
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
              << (options.save.empty() ? "nothing is saved, because --save=FILE was not given"
                                       : "--load=" + options.save + " goes on from there")
              << std::endl;
  return 128 +
         (StopSignals::received() > 0 ? StopSignals::received() : SIGTERM);  // 0: another process received it
}

}  // namespace gradus
