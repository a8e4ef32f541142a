// A product of two layers on two ranks, small enough for a pencil (--print=example).
#pragma once
#include <ostream>

namespace gradus {

void layers_by_hand(std::ostream& out);

}  // namespace gradus
