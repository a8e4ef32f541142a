// Published models: two Llamas and a mixture of experts.
#pragma once
#include "src/train/report.h"

namespace gradus {

// Prints table (e): parameters and bytes of weights, compared with the published files.
void published_mixtures(Report& report);

}  // namespace gradus
