// All published figures of BERT-large and polyglot-ko-1.3b in one table, next to those of the reproduced
// program (lessons/published) and of gradus, with the largest differences between the two.
#pragma once
#include "src/train/report.h"

namespace gradus {

void scoreboard_published(Report& report);

}  // namespace gradus
