// The model memory calculator as a program: does this run fit, what takes the most, what is the largest
// batch.
#pragma once
#include <string>

#include "src/train/memory_need.h"
#include "src/train/report.h"

namespace gradus {

// Prints the answer; batch 0 stands for 1, seq 0 for the model's context, memory 0 for no limit. The row of
// the report has the peak by kind.
void calculate(Report& report, const std::string& model, const std::string& recipe, int64_t batch,
               int64_t seq, int64_t memory);

}  // namespace gradus
