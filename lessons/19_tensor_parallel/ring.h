// The ring of context parallelism, step by step.
#pragma once
#include "src/train/report.h"

namespace gradus {

// Table (b): pairs of query and key of each rank at each step, and checks of them and of the elements sent.
void ring_table(Report& report);

}  // namespace gradus
