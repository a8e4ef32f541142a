// The example by hand on the page: every byte that training a model of eight parameters holds after the
// forward pass.
#pragma once
#include <ostream>

namespace gradus {

void bytes_by_hand(std::ostream& out);

}  // namespace gradus
