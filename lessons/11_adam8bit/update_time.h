// (c) What an update costs, with states in fp32 and in 8 bits.
#pragma once
#include "src/train/report.h"

namespace gradus {

// Of parameters that do not fit the processor's cache, and of few that do. On the current context's device.
void adam_time_table(Report& report);

}  // namespace gradus
