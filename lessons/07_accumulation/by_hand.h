// The page's small example: a mean from the means of two micro-batches.
#pragma once
#include <ostream>

namespace gradus {

void means_by_hand(std::ostream& out);

}  // namespace gradus
