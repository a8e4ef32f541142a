// A place in the source. The default argument Where::current() of a function is the place of its caller.
// (std::source_location is younger than some compilers that can build everything else.)
#pragma once
#include <cstring>

namespace gradus::emu {

struct Where {
  const char* file = "";
  int line = 0;
  static constexpr Where current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
  bool operator==(const Where& other) const {
    return line == other.line && (file == other.file || std::strcmp(file, other.file) == 0);
  }
};
// Functions take a Where by reference: a copy of a Where that was just written, in two parts, has to wait for
// the stores, which took half of a shuffle's time.
using Here = const Where&;

}  // namespace gradus::emu
