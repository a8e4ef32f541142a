#pragma once
#include "src/nn/parameter.h"
#include "src/train/report.h"

namespace gradus {

// `count` matrices with weights and gradients at random.
void add_matrices(Parameters& parameters, int count, int64_t rows, int64_t cols);

// The time of an update beside the least that moving its bytes takes on this machine, pass by pass; of Muon's
// products beside this machine's GEMM peak. On the current context's device.
void update_time_table(Report& report);

}  // namespace gradus
