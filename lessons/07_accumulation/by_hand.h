// The example on the page: the mean loss of a batch, from the mean losses of two micro-batches.
#pragma once
#include <ostream>

namespace gradus {

void means_by_hand(std::ostream& out);

}  // namespace gradus
