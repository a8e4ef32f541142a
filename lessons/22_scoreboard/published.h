// All published rows of BERT-large and polyglot-ko-1.3b in one table: the published figure; theirs, their
// program repeated on meta (lessons/published); ours; and what theirs has more, by name.
#pragma once
#include "src/train/report.h"

namespace gradus {

void scoreboard_published(Report& report);

}  // namespace gradus
