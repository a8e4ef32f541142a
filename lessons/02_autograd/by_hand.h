// The page's small example: a tape of three operations, two of which use the same tensor.
#pragma once
#include <ostream>

namespace gradus {

void gradients_by_hand(std::ostream& out);

}  // namespace gradus
