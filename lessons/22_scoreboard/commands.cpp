#include "lessons/22_scoreboard/commands.h"

#include <algorithm>
#include <iostream>

#include "lessons/22_scoreboard/plan.h"
#include "src/core/named.h"
#include "src/core/table.h"
#include "src/parallel/shards.h"
#include "src/train/lesson.h"

namespace gradus {

namespace {

// A saved run, loaded on one device. It may have been trained by several ranks.
struct LoadedRun {
  explicit LoadedRun(RunFlags& flags)
      : context(flags.device, uint64_t(flags.settings.seed), flags.memory), text(text_of(flags.settings)) {
    check(!flags.load.empty(), "--load=FILE is missing; FILE is a run that gradus train has saved");
    check(flags.device != "meta", "--device=meta computes no numbers");
    flags.settings.layout = {};
    training.emplace(flags.settings, text);
    training->load(flags.load);
  }
  Context context;
  const Text text;
  std::optional<Training> training;
};

int gradus_eval(Args& args) {
  RunFlags flags(args);
  args.done();
  LoadedRun run(flags);
  std::cout << "held-out loss " << number_text(run.training->held_out()) << " nats per byte, after "
            << run.training->steps() << " steps\n";
  return 0;
}

int gradus_sample(Args& args) {
  const std::string prompt = args.text("prompt", "\n", "beginning of the text");
  const int64_t bytes = args.integer("bytes", 400, "bytes to generate", 1, 1 << 20);
  const double temperature =
      args.number("temperature", 0.8, "below 1: likely bytes are sampled more often", 1e-3, 100);
  RunFlags flags(args);
  args.done();
  LoadedRun run(flags);
  std::cout << printable(sample_text(run.training->trained->model(), prompt, bytes, temperature,
                                     uint64_t(flags.settings.seed)))
            << "\n";
  return 0;
}

int gradus_plan(Args& args) {
  RunFlags flags(args);
  const std::string machine =
      args.text("machine", "", "predict for this device only: " + joined(names_of(published_machines())));
  args.done();
  const TrainSettings& s = flags.settings;
  const Text text = text_of(s);
  std::vector<Machine> machines = published_machines();
  if (!machine.empty()) machines = {machine_called(machine)};
  Table table({"device of each rank", "its memory", "reserved by the run", "fits", "step time, lower bound",
               "tokens/s, upper bound"});
  std::optional<PlannedStep> step;
  for (const Machine& m : machines) {
    step = plan_step(s, text, m);
    table.row({m.name, bytes_text(m.memory), bytes_text(step->reserved),
               step->reserved <= m.memory ? "yes" : "no", seconds_text(step->seconds),
               count_text(int64_t(double(s.batch * config_of(s).context) / step->seconds))});
  }
  Table kinds({"memory at the peak", "bytes"});
  for (int k = 0; k < kKinds; ++k)
    if (const int64_t n = step->peak.by_kind[size_t(k)]) kinds.row({name_of(Kind(k)), bytes_text(n)});
  kinds.row({"allocated", bytes_text(step->peak.allocated())});
  std::cout << s.model << ", " << count_text(config_of(s).parameter_count()) << " parameters, on "
            << s.layout.ranks() << (s.layout.ranks() > 1 ? " ranks, " : " rank, ") << s.batch
            << " sequences of " << config_of(s).context << " tokens per step\n\n"
            << table << "\n"
            << kinds;
  return 0;
}

}  // namespace

RunFlags::RunFlags(Args& args)
    : device(args.choice("device", "auto", "where tensors live and kernels run", device_names())),
      memory(args.bytes("memory", 0, "budget of device memory per rank, for example 64MiB (0: none)")),
      ranks(ranks_flags(args, 1024, 1)),
      load(args.text(
          "load", "",
          "load a saved run and its settings; train resumes it; flags given here override settings")),
      settings(settings_of(args, ranks.ranks)) {
  args.text("settings", "", "file with a JSON object of these flags; flags given here override it");
  ranks.device = device != "auto" ? device : ranks.comm == "nccl" ? "cuda" : "cpu";
  ranks.seed = uint64_t(settings.seed), ranks.memory_budget = memory;
  if (!load.empty()) settings.weights.clear();  // the loaded file has all weights
}

const std::vector<Command>& commands() {
  static const std::vector<Command> all{
      {"train", "train a model on any text; every method of the lessons is a flag", gradus_train},
      {"eval", "print the held-out loss of a saved run", gradus_eval},
      {"sample", "generate text with a saved run", gradus_sample},
      {"plan", "predict the memory of a run, and lower bounds of its step time on several machines",
       gradus_plan},
  };
  return all;
}

const Command* command_in(int argc, char** argv) {
  const auto word = std::find_if(argv + 1, argv + argc, [](const char* w) { return w[0] != '-'; });
  if (word == argv + argc) {
    const bool is_lesson = !std::string_view(argv[0]).ends_with("/gradus");  // else called as build/gradus
    if (is_lesson) return nullptr;
    std::string list;
    for (const Command& c : commands()) list += "\n  " + c.name + ": " + c.about;
    throw BadArguments("gradus COMMAND --help lists the flags of a command; the commands are" + list);
  }
  for (const Command& c : commands())
    if (c.name == *word) return &c;
  throw BadArguments("gradus: '" + std::string(*word) +
                     "' is not a command; the commands are: " + joined(names_of(commands())));
}

int run_command(const Command& command, std::vector<std::string> words) {
  std::erase(words, command.name);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  Args args(int(pointers.size()), pointers.data(), "gradus " + command.name, command.about);
  try {
    return command.run(args);
  } catch (const BadArguments& e) {  // Args does not know which words came from a file
    for (const std::string& word : words)
      if (word.starts_with("--settings=") || word.starts_with("--load="))
        throw BadArguments(std::string(e.what()) + " (from the command line, or from " + word + ")");
    throw;
  }
}

}  // namespace gradus
