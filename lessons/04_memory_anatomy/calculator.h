// The memory calculator as a program: does a run fit, which tensors are the largest, what is the largest
// batch that fits?
#pragma once
#include <string>

#include "src/train/memory_need.h"
#include "src/train/report.h"

namespace gradus {

// Prints the answers. seq 0: the model's context; memory 0: no limit. The row of the report has the peak by
// kind.
void calculate(Report& report, const std::string& model, const std::string& recipe, int64_t batch,
               int64_t seq, int64_t memory);
void check_states(const Usage& peak, int64_t formula, Report& report);

// Compares the calculator's prediction for a run with what was measured in the run; `skip`: why the checks of
// this run are skipped.
void compare_with_prediction(const TrainingRun& run, const ReportRow& row, const std::string& skip,
                             Report& report);

// (g) The largest batches of known models on GPUs of three sizes.
void calculator_table();

}  // namespace gradus
