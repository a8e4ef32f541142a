// The page's small example: attention over two tokens with heads of one number, and a loss.
#pragma once
#include <ostream>

namespace gradus {

void attention_by_hand(std::ostream& out);

}  // namespace gradus
