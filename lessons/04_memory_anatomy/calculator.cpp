#include "lessons/04_memory_anatomy/calculator.h"

#include <iostream>

#include "src/core/args.h"
#include "src/core/table.h"
#include "src/train/formulas.h"

namespace gradus {

constexpr size_t kLargestShown = 10;

static TransformerConfig config_of(const std::string& model) {
  try {
    return transformer_config(model);
  } catch (const Error& e) {
    throw BadArguments("--model: " + std::string(e.what()));
  }
}

// A model with a pooled head is trained as a classifier with two labels.
static TrainingRun training_run(const std::string& model, const std::string& recipe, int64_t batch,
                                int64_t seq) {
  TrainingRun run{config_of(model), batch, seq};
  if (run.seq == 0) run.seq = run.model.context;
  if (run.model.output_head == OutputHead::Pooled) run.model.labels = 2;
  run.model.precision = precision_recipe(recipe);
  return run;
}

static void print_largest(const MemoryNeed& need) {
  const MemoryEvent& by = need.peak.reached_by;
  std::cout << "\nThe peak is reached in " << by.op << ", which allocates " << by.name << " " << by.shape
            << " (" << bytes_text(by.requested) << ").\n\n";
  Table table({"largest tensors at the peak", "shape", "kind", "allocated in", "bytes", ""});
  for (size_t i = 0; i < std::min(kLargestShown, need.peak.alive.size()); ++i) {
    const MemoryEvent& b = need.peak.alive[i];
    table.row(
        {b.name, b.shape.text(), name_of(b.kind), b.op, count_text(b.requested), bytes_text(b.requested)});
  }
  std::cout << table;
}

static void print_verdict(const TrainingRun& run, const MemoryNeed& need, int64_t memory) {
  const std::string what =
      "Batch " + std::to_string(run.batch) + ", " + std::to_string(run.seq) + " tokens per sequence:";
  if (memory == 0) {
    std::cout << "\n"
              << what << " needs " << bytes_text(need.reserved)
              << ". With --memory=16GiB the program also prints whether this fits, and the largest batch "
                 "that fits.\n";
    return;
  }
  const int64_t largest = largest_batch(run, memory);
  std::cout << "\n"
            << what << (fits(run, memory) ? " fits" : " does NOT fit") << " into " << bytes_text(memory);
  if (largest > 0)
    std::cout << ". The largest batch that fits: " << largest << ".\n";
  else
    std::cout << ". A batch of 1 does not fit.\n";
  std::cout << "The CUDA context (memory of the driver and its libraries, 0.3 to 1.5 GiB) is not included: "
               "subtract it from --memory.\n";
}

void calculate(Report& report, const std::string& model, const std::string& recipe, int64_t batch,
               int64_t seq, int64_t memory) {
  const TrainingRun run = training_run(model, recipe, batch, seq);
  const MemoryNeed need = memory_need(run);
  std::cout << model << ": " << count_text(need.parameters) << " parameters, " << recipe << ", AdamW, "
            << bytes_per_parameter(run.model.precision, 2) << " bytes per parameter\n";
  print_largest(need);
  print_verdict(run, need, memory);

  report.config("model", model);
  report.config("recipe", recipe);
  report.config("batch", run.batch);
  report.config("seq", run.seq);
  ReportRow& row = report.row(model);
  row.peak = need.peak.usage;
  row.reserved_bytes = need.reserved;
  row.extra = {{"parameters", double(need.parameters)}};
  check_states(need.peak.usage, bytes_per_parameter(run.model.precision, 2) * need.parameters, report);
}

void check_states(const Usage& peak, int64_t formula, Report& report) {
  int64_t measured = 0;
  for (const Kind kind : {Kind::Weight, Kind::Master, Kind::Gradient, Kind::Optimizer})
    measured += peak[kind];
  report.check_equal("bytes of weights, master copies, gradients, states = formula", measured, formula);
}

void compare_with_prediction(const TrainingRun& run, const ReportRow& row, const std::string& skip,
                             Report& report) {
  const MemoryNeed need = memory_need(run);
  Table table({"bytes at the peak", "predicted", "measured"});
  const Usage &predicted = need.peak.usage, &measured = *row.peak;
  int64_t differing = 0;
  for (int k = 0; k < kKinds; ++k) {
    differing += predicted.by_kind[k] != measured.by_kind[k];
    if (predicted.by_kind[k] + measured.by_kind[k] > 0)
      table.row({name_of(Kind(k)), count_text(predicted.by_kind[k]), count_text(measured.by_kind[k])});
  }
  table.row({"rounding", count_text(predicted.rounding), count_text(measured.rounding)});
  table.row({"allocated", count_text(predicted.allocated()), count_text(measured.allocated())});
  table.row({"reserved", count_text(need.reserved), count_text(*row.reserved_bytes)});
  std::cout << "\n" << table << "The peak is reached in " << need.peak.reached_by.op << ".\n";
  const int64_t N = need.parameters;
  report.check_equal("bytes of weights, gradients, AdamW's states = (4 + 4 + 8) N",
                     measured[Kind::Weight] + measured[Kind::Gradient] + measured[Kind::Optimizer], 16 * N,
                     skip);
  report.check_equal("kinds of memory that differ from the prediction", differing, 0, skip);
  report.check_equal("allocated bytes at the peak = predicted", measured.allocated(), predicted.allocated(),
                     skip);
  report.check_equal("reserved bytes at the peak = predicted", *row.reserved_bytes, need.reserved, skip);
  report.check_equal("bytes of kind 'other' = scalars of the step and of the optimizer",
                     measured[Kind::Other], sizeof(StepScalars) + sizeof(UpdateScalars));
}

void calculator_table() {
  std::cout << "\n(g) Largest batch that fits on GPUs of 16, 24 and 80 GiB, less 1 GiB for the CUDA context "
               "(0: none); gpt-36x4096x32: layers x channels x heads\n\n";
  constexpr struct {
    const char *model, *recipe;
    int64_t seq;
  } kRuns[] = {
      {"gpt2", "fp32", 1024},      {"gpt2", "mixed", 1024},           {"gpt2-xl", "mixed", 1024},
      {"bert-large", "fp32", 512}, {"polyglot-ko-1.3b", "half", 256}, {"gpt-36x4096x32", "half", 1024}};
  Table table({"model", "recipe", "tokens", "parameters", "reserved, batch 1", "operation at the peak",
               "16 GiB", "24 GiB", "80 GiB"});
  for (const auto& [model, recipe, seq] : kRuns) {
    const TrainingRun run = training_run(model, recipe, 1, seq);
    const MemoryNeed need = memory_need(run);
    std::vector<std::string> cells{model,
                                   recipe,
                                   std::to_string(seq),
                                   count_text(need.parameters),
                                   bytes_text(need.reserved),
                                   need.peak.reached_by.op};
    for (const int64_t gib : {16, 24, 80})
      cells.push_back(std::to_string(largest_batch(run, (gib - 1) << 30)));
    table.row(cells);
  }
  std::cout << table;
}

}  // namespace gradus
