#pragma once
#include <ostream>

namespace gradus {

// --print=example: two updates of one weight by each optimizer, and Adafactor's squares of a matrix, rebuilt
// from its row and column means. The optimizers themselves compute all numbers.
void optimizers_by_hand(std::ostream& out);

}  // namespace gradus
