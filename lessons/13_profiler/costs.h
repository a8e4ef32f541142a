// The cost of profiling: of a range without a profiler, and of a step with one.
#pragma once
#include "lessons/13_profiler/rounds.h"

namespace gradus {

// The time of one range without a profiler: of a loop with a range, minus that of a loop without one.
double seconds_of_a_range();
// Prints the tables of a run, and reports how much of a step its ranges cover and how much time they cost.
void report_costs(const Round& round, const Machine& machine, Report& report);
// Its checks of time; range_seconds: of a range without a profiler.
void check_costs(const Round& round, double range_seconds, Report& report);

}  // namespace gradus
