// What a unit is good for: a hundred linear layers, gathered at once, or one at a time.
#pragma once
#include "src/train/report.h"

namespace gradus {

// y = a hundred linear layers of x, in stage 3 on 4 ranks of the device meta, as one unit and as a unit each:
// the most bytes of weights gathered at once. And a GPT, whose embeddings are the root's.
void units_table(Report& report);

}  // namespace gradus
