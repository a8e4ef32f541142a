// What characters are, by the Unicode of utf8proc: 15.0 since its version 2.8.
#pragma once
#include <cstdint>
#include <string_view>

namespace gradus {

enum class CharClass : uint8_t { Other, Letter, Number, Space };

// Letter and Number are the general categories L and N, Space the property White_Space. Code points that are
// not assigned, or no characters, are Other.
CharClass class_of(char32_t code_point);

struct Char {
  CharClass is;
  int bytes;
};
// The first character of a text that is not empty. A byte that begins no well-formed UTF-8 is one of class
// Other.
Char first_char(std::string_view text);

}  // namespace gradus
