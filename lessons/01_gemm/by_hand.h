// The page's small example: a product of 2 x 2 matrices, and how many numbers two ways to compute it read.
#pragma once
#include <ostream>

namespace gradus {

void product_by_hand(std::ostream& out);

}  // namespace gradus
