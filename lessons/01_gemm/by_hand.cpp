#include "lessons/01_gemm/by_hand.h"

#include <cstdint>

#include "src/core/table.h"

namespace gradus {

// A matrix of two columns that counts how often its numbers are read.
struct Counted {
  float at(int i, int j) {
    ++reads;
    return numbers[i][j];
  }
  float numbers[2][2];
  int64_t reads = 0;
};

static void say(std::ostream& out, const char* order, const Counted& a, const Counted& b) {
  const int64_t reads = a.reads + b.reads;
  out << order << reads << " numbers read, 16 / (4 * " << reads
      << ") = " << number_text(16 / (4 * double(reads))) << " FLOPs a byte\n";
}

void product_by_hand(std::ostream& out) {
  Counted a{{{1, 2}, {3, 4}}}, b{{{5, 6}, {7, 8}}};
  float c[2][2] = {};
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j)
      for (int k = 0; k < 2; ++k) c[i][j] += a.at(i, k) * b.at(k, j);
  out << "A = 1 2   B = 5 6   C = A B = " << c[0][0] << " " << c[0][1] << "\n"
      << "    3 4       7 8             " << c[1][0] << " " << c[1][1] << "\n"
      << "2 n^3 = 16 FLOPs with n = 2; a number has 4 bytes\n";
  say(out, "C1, one element of C at a time: ", a, b);

  a.reads = b.reads = 0;
  float patch[2][2] = {};
  for (int k = 0; k < 2; ++k) {
    const float a0 = a.at(0, k), a1 = a.at(1, k), b0 = b.at(k, 0), b1 = b.at(k, 1);
    patch[0][0] += a0 * b0, patch[0][1] += a0 * b1;
    patch[1][0] += a1 * b0, patch[1][1] += a1 * b1;
  }
  say(out, "C4, all four elements together:  ", a, b);
}

}  // namespace gradus
