// Published shapes: two Llamas and a mixture.
#pragma once
#include "src/train/report.h"

namespace gradus {

// Table (e).
void published_mixtures(Report& report);

}  // namespace gradus
