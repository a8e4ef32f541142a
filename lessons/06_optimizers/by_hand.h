#pragma once
#include <ostream>

namespace gradus {

// --print=example: two updates of one weight by each optimizer, Adafactor's squares of a matrix, rebuilt from
// its row and column means, and two singular values in Muon's iterations. The optimizers themselves compute
// all numbers but the last.
void optimizers_by_hand(std::ostream& out);

}  // namespace gradus
