#include "lessons/22_scoreboard/commands.h"

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "lessons/22_scoreboard/curves.h"
#include "lessons/22_scoreboard/plan.h"
#include "src/core/named.h"
#include "src/core/table.h"
#include "src/io/atomic_file.h"
#include "src/parallel/comm/processes.h"
#include "src/parallel/shards.h"
#include "src/train/lesson.h"

namespace gradus {

namespace {

// What all commands have.
struct Flags {
  explicit Flags(Args& args)
      : device(args.choice("device", "auto", "where tensors live and kernels run", device_names())),
        memory(args.bytes("memory", 0, "budget of device memory, of each rank, for example 64MiB (0: none)")),
        ranks(ranks_flags(args, 1024, 1)),
        load(args.text("load", "", "go on from this file, with its settings; other flags come before them")),
        settings(settings_of(args, ranks.ranks)) {
    args.text("settings", "", "a JSON file of these flags, by their names; flags come before it");
    ranks.device = device != "auto" ? device : ranks.comm == "nccl" ? "cuda" : "cpu";
    ranks.seed = uint64_t(settings.seed), ranks.memory_budget = memory;
    if (!load.empty()) settings.weights.clear();  // the file has all of them
  }
  std::string device;
  int64_t memory;
  RanksArgs ranks;
  std::string load;
  TrainSettings settings;
};

// A run on one device, whatever ranks made it.
struct LoadedRun {
  explicit LoadedRun(Flags& flags)
      : context(flags.device, uint64_t(flags.settings.seed), flags.memory), text(text_of(flags.settings)) {
    check(!flags.load.empty(), "--load=FILE is missing: a file that gradus train has saved");
    check(flags.device != "meta", "--device=meta computes no numbers");
    flags.settings.layout = {};
    training.emplace(flags.settings, text);
    training->load(flags.load);
  }
  Transformer& model() { return training->trained->model(); }
  Context context;
  const Text text;
  std::optional<Training> training;
};

void say_expected(const std::vector<double>& losses, int64_t first,
                  const std::vector<ExpectedLoss>& expected) {
  const CurveVerdict verdict = compare_curve(losses, first, expected);
  const std::string picture = "build/plots/22_curve.svg";
  make_folder_of(picture);
  draw_curve(losses, first, expected, picture);
  std::cout << "the loss is outside of what is expected in " << verdict.outside << " of " << verdict.compared
            << " parts of the run; the curves: " << picture << "\n";
}

int gradus_train(Args& args) {
  Flags flags(args);
  TrainFiles files;
  files.save = args.text("save", "", "file of the run, to go on from");
  files.save_every = args.integer("save-every", 100, "steps between two times", 1, 1 << 30);
  files.curve = args.text("curve", "", "a line of JSON for each step");
  const std::string expected_file =
      args.text("expected", "", "compare with such a curve: lessons/22_scoreboard/curves/gpt.jsonl, ...");
  const std::string json = args.text("json", "", "also write the report to this file");
  const std::string trace_file = args.text("trace", "", "what ran when, for ui.perfetto.dev (slower)");
  args.done();
  check(files.save.empty() || files.save == flags.load || !std::filesystem::exists(files.save),
        "--save=", files.save, " is there already; --load=", files.save,
        " goes on with it, or remove it to begin anew");
  check(files.save.empty() || flags.device != "meta", "--save: the device meta computes no numbers");
  // What cannot be written is refused now, and not after the work.
  if (this_rank(flags.ranks) == 0)
    for (const std::string& path : {files.save, files.curve, json, trace_file})
      if (!path.empty()) AtomicFile{path};
  std::vector<ExpectedLoss> expected;
  if (!expected_file.empty()) expected = read_expected(expected_file);
  const StopSignals signals;
  std::optional<RunTrace> trace;
  if (!trace_file.empty()) trace.emplace(trace_file);
  flags.ranks.made = [&](int64_t rank, Context& context) {
    if (trace) trace->add(context, "rank " + std::to_string(rank));
  };
  const Text text = text_of(flags.settings);
  int code = 0;
  const auto run = [&](Comm* comm) {
    Training training(flags.settings, text, comm);
    if (!flags.load.empty()) training.load(flags.load);
    const StepRecorder recorder = train(training, files);
    if (comm && comm->rank() > 0) return;
    Report report("gradus train", current().device);
    const TransformerConfig& c = training.trained->model().config;
    report.config(c, flags.settings.batch);
    report.config("steps", training.steps());
    if (recorder.losses.empty()) return;
    ReportRow& row = report.row(flags.settings.model);
    recorder.fill(row, flags.settings.batch * c.context);
    if (!comm && current().device.has_data() && StopSignals::received() == 0)
      row.loss_held_out = held_out_loss(training.trained->model(), training.loader, flags.settings.batch);
    if (!expected.empty())
      say_expected(recorder.losses, training.steps() - int64_t(recorder.losses.size()), expected);
    report.check_at_most("the last loss is a number", recorder.losses.back(), INFINITY);
    code = report.finish(json);
  };
  if (flags.ranks.ranks > 1)
    run_ranks(flags.ranks, [&](Comm& comm) { run(&comm); });
  else {
    Context context(flags.device, uint64_t(flags.settings.seed), flags.memory);
    if (trace) trace->add(context, context.device.name());
    run(nullptr);
  }
  if (trace) trace->write();
  if (StopSignals::received() == 0) return code;
  std::cerr << "stopped by a signal; "
            << (files.save.empty() ? "nothing is saved, for want of --save=FILE"
                                   : "--load=" + files.save + " goes on from there")
            << std::endl;
  return 128 + StopSignals::received();
}

int gradus_eval(Args& args) {
  Flags flags(args);
  args.done();
  LoadedRun run(flags);
  std::cout << "held-out loss "
            << number_text(held_out_loss(run.model(), run.training->loader, flags.settings.batch))
            << " nats per byte, after " << run.training->steps() << " steps\n";
  return 0;
}

int gradus_sample(Args& args) {
  Flags flags(args);
  const std::string prompt = args.text("prompt", "\n", "the text begins with it");
  const int64_t bytes = args.integer("bytes", 400, "to write", 1, 1 << 20);
  const double temperature = args.number("temperature", 0.8, "below 1: likelier text", 1e-3, 100);
  args.done();
  LoadedRun run(flags);
  std::cout << printable(sample_text(run.model(), prompt, bytes, temperature, uint64_t(flags.settings.seed)))
            << "\n";
  return 0;
}

int gradus_plan(Args& args) {
  Flags flags(args);
  const std::string machine =
      args.text("machine", "", "only this one: " + joined(names_of(published_machines())));
  args.done();
  const TrainSettings& s = flags.settings;
  const Text text = text_of(s);
  std::vector<Machine> machines = published_machines();
  if (!machine.empty()) machines = {machine_called(machine)};
  Table table({"each rank has", "memory", "needs", "fits", "step at least", "tokens/s at most"});
  std::optional<PlannedStep> step;
  for (const Machine& m : machines) {
    step = plan_step(s, text, m);
    table.row({m.name, bytes_text(m.memory), bytes_text(step->reserved),
               step->reserved <= m.memory ? "yes" : "no", seconds_text(step->seconds),
               count_text(int64_t(double(s.batch * config_of(s).context) / step->seconds))});
  }
  Table kinds({"at the peak", "bytes"});
  for (int k = 0; k < kKinds; ++k)
    if (const int64_t n = step->peak.by_kind[size_t(k)]) kinds.row({name_of(Kind(k)), bytes_text(n)});
  std::cout << s.model << ", " << count_text(config_of(s).parameter_count()) << " parameters, on "
            << s.layout.ranks() << (s.layout.ranks() > 1 ? " ranks, " : " rank, ") << s.batch
            << " sequences of " << config_of(s).context << " tokens per step\n\n"
            << table << "\n"
            << kinds;
  return 0;
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> all{
      {"train", "train a model on any text, with what the lessons teach", gradus_train},
      {"eval", "the loss of a saved run on the held-out text", gradus_eval},
      {"sample", "text that a saved run writes", gradus_sample},
      {"plan", "what a run needs on other machines, and how fast it can be, before anything runs",
       gradus_plan},
  };
  return all;
}

const Command* command_in(int argc, char** argv) {
  const auto word = std::find_if(argv + 1, argv + argc, [](const char* w) { return w[0] != '-'; });
  if (word == argv + argc) return nullptr;
  for (const Command& c : commands())
    if (c.name == *word) return &c;
  throw BadArguments("gradus: '" + std::string(*word) +
                     "' is no command; there are: " + joined(names_of(commands())));
}

int run_command(const Command& command, std::vector<std::string> words) {
  std::erase(words, command.name);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  Args args(int(pointers.size()), pointers.data(), "gradus " + command.name, command.about);
  return command.run(args);
}

}  // namespace gradus
