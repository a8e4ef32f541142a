// The model memory calculator as a program: does this run fit, what takes the most, what is the largest
// batch.
#pragma once
#include <string>

#include "src/train/memory_need.h"
#include "src/train/report.h"

namespace gradus {

// Prints the answer; seq 0 stands for the model's context, memory 0 for no limit. The row of the report has
// the peak by kind.
void calculate(Report& report, const std::string& model, const std::string& recipe, int64_t batch,
               int64_t seq, int64_t memory);
void check_states(const Usage& peak, int64_t formula, Report& report);

// What the calculator finds for a run, beside what was measured when it ran; `skip`: why that decides
// nothing.
void compare_with_prediction(const TrainingRun& run, const ReportRow& row, const std::string& skip,
                             Report& report);

// (g) The largest batches of known models on cards of several sizes.
void calculator_table();

}  // namespace gradus
