#include "src/data/unicode.h"

#include <utf8proc.h>

#include <vector>

#include "src/core/utf8.h"

namespace gradus {

constexpr char32_t kCodePoints = 0x110000;

static bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static std::vector<CharClass> all_classes() {
  std::vector<CharClass> classes(kCodePoints, CharClass::Other);
  for (char32_t c = 0; c < kCodePoints; ++c) {
    const utf8proc_category_t category = utf8proc_category(utf8proc_int32_t(c));
    if (is_space(c))
      classes[c] = CharClass::Space;
    else if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO)
      classes[c] = CharClass::Letter;
    else if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO)
      classes[c] = CharClass::Number;
  }
  return classes;
}

CharClass class_of(char32_t c) {
  static const std::vector<CharClass> classes = all_classes();
  return c < kCodePoints ? classes[c] : CharClass::Other;
}

Char first_char(std::string_view text) {
  const auto byte = [&](size_t i) { return char32_t(uint8_t(text[i])); };
  if (byte(0) < 0x80) return {class_of(byte(0)), 1};
  const int bytes = utf8_length(text);
  if (bytes == 0) return {CharClass::Other, 1};
  char32_t c = byte(0) & (0xFF >> (bytes + 1));
  for (int i = 1; i < bytes; ++i) c = c << 6 | (byte(size_t(i)) & 0x3F);
  return {class_of(c), bytes};
}

}  // namespace gradus
