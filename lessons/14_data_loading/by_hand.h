// Lesson 14's example, which can be checked with a pencil, and texts shown in their tokens.
#pragma once
#include <ostream>

#include "src/data/byte_pairs.h"

namespace gradus {

void byte_pairs_by_hand(std::ostream& out);

// The beginning of a token between quotation marks, for a table.
std::string quoted(std::string_view token);

// The tokens of a text as text, with a bar between them.
std::string in_tokens(std::string_view text, const BytePairs& pairs);

}  // namespace gradus
