// What the ring of context parallelism does, step by step.
#pragma once
#include "src/train/report.h"

namespace gradus {

// (b) in the report: pairs of query and key that each rank meets at each step, with chunks side by side and
// with zigzag; and the elements that a layer sends, by formula and as measured.
void ring_table(Report& report);

}  // namespace gradus
