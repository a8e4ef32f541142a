// Models whose training was published, planned: do they fit, and how long does a step take?
#pragma once
#include "src/parallel/plan.h"
#include "src/train/report.h"

namespace gradus {

// (d) in the report: the four models of Korthikanti et al. 2023 (tables 3 and 5), and three of Narayanan et
// al. 2021 (table 1), on A100 with 80 GB.
void published_table(Report& report);

}  // namespace gradus
