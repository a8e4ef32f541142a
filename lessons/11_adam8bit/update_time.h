// (d) The cost of an update with states in fp32 and in 8 bits.
#pragma once
#include "src/train/report.h"

namespace gradus {

// For parameters that do not fit into the cache of the processor, and for few that do. On the device of the
// current context.
void adam_time_table(Report& report);
// The time in fp32 divided by the time in 8 bits, for the many parameters.
void check_update_time(double factor, Report& report);

}  // namespace gradus
