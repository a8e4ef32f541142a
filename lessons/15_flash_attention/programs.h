// The three programs of one_head.h on the same head: what they load and store, and how far they are off.
#pragma once
#include "src/train/report.h"

namespace gradus {

void report_programs(uint64_t seed, Report&);

}  // namespace gradus
