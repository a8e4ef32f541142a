#pragma once
#include <ostream>

namespace gradus {

// --print=example: three updates of one weight by each rule, and a matrix of squares rebuilt from the means
// of its rows and columns, computed by the optimizers.
void optimizers_by_hand(std::ostream& out);

}  // namespace gradus
