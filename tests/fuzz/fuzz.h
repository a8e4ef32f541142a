// What the harnesses share. Each is one file with the function that libFuzzer calls: it uses its input and
// ends the program if a contract is broken, as every failed EXPECT of GoogleTest does here. Most inputs are
// invalid and must give an Error, soon and in little memory.
//
// driver.cpp calls it with generated inputs. libFuzzer can call it, too, guided by coverage; with clang:
//   clang++ -std=c++20 -I. -fopenmp -fsanitize=fuzzer,address tests/fuzz/json.cpp build/libgradus.a -lgtest
#pragma once
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <string>

#include "src/core/rng.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size);
// Called once, before the inputs; libFuzzer does so, too.
extern "C" [[gnu::used]] inline int LLVMFuzzerInitialize(int*, char***) {
  GTEST_FLAG_SET(break_on_failure, true);
  return 0;
}

namespace gradus::fuzz {

// Each harness defines this: a typical input. The driver damages most of them.
std::string sample(Rng&);

inline std::string random_bytes(Rng& rng, uint64_t most) {
  std::string bytes(rng.below(most + 1), '\0');
  for (char& b : bytes) b = char(rng.below(256));
  return bytes;
}
// One of a list.
template <class List>
const auto& one_of(Rng& rng, const List& list) {
  return list[rng.below(std::size(list))];
}

// Decisions read from an input. After its end, all decisions are the least value.
class Choices {
 public:
  Choices(const uint8_t* bytes, size_t size) : bytes_(bytes), left_(size) {}
  bool left() const { return left_ > 0; }

  int64_t between(int64_t least, int64_t most) {
    const uint64_t span = uint64_t(most) - uint64_t(least);
    uint64_t drawn = 0;
    for (uint64_t rest = span; rest > 0; rest >>= 8) drawn = drawn << 8 | byte();
    return int64_t(uint64_t(least) + (span == UINT64_MAX ? drawn : drawn % (span + 1)));
  }
  bool yes() { return between(0, 1) == 1; }
  template <class List>
  const auto& one_of(const List& list) {
    return list[size_t(between(0, int64_t(std::size(list)) - 1))];
  }
  // Any double; often a special one, or the next above the previous one.
  double number() {
    using Limits = std::numeric_limits<double>;
    static constexpr double kSpecial[] = {0,
                                          -0.0,
                                          1,
                                          -1,
                                          0.1,
                                          1e-3,
                                          100,
                                          1e16,
                                          1e-9,
                                          Limits::max(),
                                          -Limits::max(),
                                          Limits::min(),
                                          Limits::denorm_min(),
                                          Limits::infinity(),
                                          -Limits::infinity(),
                                          Limits::quiet_NaN()};
    switch (between(0, 4)) {
      case 0: return last_ = one_of(kSpecial);
      case 1: return last_ = std::nextafter(last_, Limits::infinity());
      case 2: return last_ = std::bit_cast<double>(between(INT64_MIN, INT64_MAX));
      default: return last_ = double(between(-1000, 1000)) / 8;
    }
  }
  std::string text(int64_t most) {
    std::string text(size_t(between(0, most)), '\0');
    for (char& c : text) c = char(byte());
    return text;
  }

 private:
  uint8_t byte() { return left_ > 0 ? (--left_, *bytes_++) : uint8_t(0); }

  const uint8_t* bytes_;
  size_t left_;
  double last_ = 0;
};

}  // namespace gradus::fuzz
