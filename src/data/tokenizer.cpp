#include "src/data/tokenizer.h"

#include <algorithm>

#include "src/core/utf8.h"

namespace gradus {

std::string printable(std::string_view text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  while (!text.empty()) {
    const uint8_t byte = uint8_t(text[0]);
    const bool control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
    // U+0080 to U+009F, in UTF-8 C2 80 to C2 9F, are control codes as well.
    const bool control_c1 = byte == 0xC2 && text.size() > 1 && uint8_t(text[1]) < 0xA0;
    const int length = control || control_c1 ? 0 : utf8_length(text);
    if (length == 0) out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    out += text.substr(0, size_t(length));
    text.remove_prefix(size_t(std::max(length, 1)));
  }
  return out;
}

}  // namespace gradus
