// What profiling costs: when nobody listens, and when somebody does.
#pragma once
#include "lessons/13_profiler/rounds.h"

namespace gradus {

double seconds_of_a_range();  // that nobody listens to: with it, less without it, in one loop each
// Prints the tables of a run, and reports what its trace covers and costs.
void report_costs(const Round& round, Report& report);

}  // namespace gradus
