#pragma once
#include "src/train/report.h"

namespace gradus {

// The time of an update beside the least that moving its bytes takes on this machine, pass by pass; of Muon's
// products beside this machine's GEMM peak. On the current context's device.
void update_time_table(Report& report);

}  // namespace gradus
