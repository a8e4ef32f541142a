#include "src/core/utf8.h"

#include <cstddef>
#include <cstdint>

namespace gradus {

int utf8_length(std::string_view s) {
  if (s.empty()) return 0;
  const auto byte = [&](size_t i) { return i < s.size() ? uint8_t(s[i]) : uint8_t(0); };
  const uint8_t b = byte(0);
  if (b < 0x80) return 1;
  const int length = b >= 0xC2 && b < 0xE0 ? 2 : b >= 0xE0 && b < 0xF0 ? 3 : b >= 0xF0 && b < 0xF5 ? 4 : 0;
  for (int i = 1; i < length; ++i)
    if ((byte(size_t(i)) & 0xC0) != 0x80) return 0;
  // Overlong forms, surrogates, and code points past U+10FFFF.
  if ((b == 0xE0 && byte(1) < 0xA0) || (b == 0xED && byte(1) > 0x9F) || (b == 0xF0 && byte(1) < 0x90) ||
      (b == 0xF4 && byte(1) > 0x8F))
    return 0;
  return length;
}

}  // namespace gradus
