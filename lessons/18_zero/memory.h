// The bytes of a rank, by stage and number of ranks: predicted, measured, published.
#pragma once
#include "src/train/lesson.h"

namespace gradus {

// A small GPT in 2 + 2 + 12 bytes a parameter, stages 0 to 3 on 1 to 8 ranks, each byte and each element sent
// as predicted; and a picture.
void memory_table(const Lesson& lesson, Report& report);
// Rajbhandari et al. 2020, table 1: a model of 7.5B parameters on 1 to `most` ranks.
void published_table(int64_t most, Report& report);

}  // namespace gradus
