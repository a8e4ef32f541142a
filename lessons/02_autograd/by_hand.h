// The page's small example: three operations, of which two use the same tensor.
#pragma once
#include <ostream>

namespace gradus {

void gradients_by_hand(std::ostream& out);

}  // namespace gradus
