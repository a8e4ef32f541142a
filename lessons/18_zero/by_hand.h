// The page's small example: eight parameters on four ranks.
#pragma once
#include <ostream>

namespace gradus {

void shards_by_hand(std::ostream& out);

}  // namespace gradus
