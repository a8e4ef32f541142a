// The page's small example: every byte that a network of eight parameters holds after a forward pass.
#pragma once
#include <ostream>

namespace gradus {

void bytes_by_hand(std::ostream& out);

}  // namespace gradus
