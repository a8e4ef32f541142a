// UTF-8: where a character ends.
#pragma once
#include <string_view>

namespace gradus {

// The length in bytes of the well-formed UTF-8 character at the start of the text (RFC 3629), or 0.
int utf8_length(std::string_view text);

}  // namespace gradus
