// Classes of characters, by utf8proc's version of Unicode: 15.0 since utf8proc 2.8.
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
// The first character of a text that is not empty. A byte that does not begin well-formed UTF-8 is a
// character of class Other.
Char first_char(std::string_view text);

}  // namespace gradus
