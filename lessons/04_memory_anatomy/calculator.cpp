#include "lessons/04_memory_anatomy/calculator.h"

#include <iostream>

#include "src/core/table.h"

namespace gradus {

constexpr size_t kLargestShown = 10;

static void print_largest(const MemoryNeed& need) {
  const MemoryEvent& by = need.peak.reached_by;
  std::cout << "\nThe peak is reached in " << by.op << ", when it asks for " << by.name << " " << by.shape
            << " (" << bytes_text(by.requested) << ").\n\n";
  Table table({"the largest tensors alive then", "shape", "kind", "made in", "bytes", ""});
  for (size_t i = 0; i < std::min(kLargestShown, need.peak.alive.size()); ++i) {
    const MemoryEvent& b = need.peak.alive[i];
    table.row(
        {b.name, b.shape.text(), name_of(b.kind), b.op, count_text(b.requested), bytes_text(b.requested)});
  }
  std::cout << table;
}

static void print_verdict(const TrainingRun& run, const MemoryNeed& need, int64_t memory) {
  const std::string what =
      "batch " + std::to_string(run.batch) + " of " + std::to_string(run.seq) + " tokens";
  if (memory == 0) {
    std::cout << "\n"
              << what << " needs " << bytes_text(need.reserved)
              << ". With --memory=16GiB the answer says whether that fits, and what the largest batch is.\n";
    return;
  }
  const int64_t largest = largest_batch(run, memory);
  std::cout
      << "\n"
      << what << (run.batch <= largest ? " fits" : " does NOT fit") << " into " << bytes_text(memory)
      << ". The largest batch that does: " << largest << ".\n"
      << "What a GPU's driver and libraries take besides (its context, 0.3 to 1.5 GiB) is not in this: leave "
         "it out of --memory.\n";
}

void calculate(Report& report, const std::string& model, const std::string& recipe, int64_t batch,
               int64_t seq, int64_t memory) {
  TrainingRun run{transformer_config(model), std::max<int64_t>(batch, 1), seq};
  if (run.seq == 0) run.seq = run.model.context;
  if (run.model.head == Head::Pooled) run.model.labels = 2;
  run.model.precision = precision_recipe(recipe);
  const MemoryNeed need = memory_need(run);
  std::cout << model << ": " << count_text(need.parameters) << " parameters, " << recipe << ", AdamW, "
            << bytes_per_parameter(run.model.precision, 2) << " bytes a parameter\n";
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
}

}  // namespace gradus
