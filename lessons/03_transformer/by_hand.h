// The example on the page: attention over two tokens, with one head of one dimension, and a loss.
#pragma once
#include <ostream>

namespace gradus {

void attention_by_hand(std::ostream& out);

}  // namespace gradus
