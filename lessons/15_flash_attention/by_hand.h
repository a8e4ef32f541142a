// --print=example: the softmax of four scores in two passes and online, and attention with it.
#pragma once
#include <ostream>

namespace gradus {

void online_softmax_by_hand(std::ostream& out);

}  // namespace gradus
