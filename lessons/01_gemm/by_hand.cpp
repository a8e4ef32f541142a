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

static void print_reads(std::ostream& out, const char* order, const Counted& a, const Counted& b) {
  const int64_t reads = a.reads + b.reads;
  out << order << reads << " numbers read, 16 FLOPs / (4 * " << reads
      << " bytes) = " << number_text(16 / (4 * double(reads))) << " FLOPs/byte\n";
}

void product_by_hand(std::ostream& out) {
  Counted a{{{1, 2}, {3, 4}}}, b{{{5, 6}, {7, 8}}};
  float c[2][2] = {};
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j)
      for (int k = 0; k < 2; ++k) c[i][j] += a.at(i, k) * b.at(k, j);
  out << "A = 1 2   B = 5 6   C = A B = " << c[0][0] << " " << c[0][1] << "\n"
      << "    3 4       7 8             " << c[1][0] << " " << c[1][1] << "\n"
      << "n = 2, so 2 n^3 = 16 FLOPs; an fp32 number has 4 bytes\n";
  print_reads(out, "C1, one element of C at a time: ", a, b);

  a.reads = b.reads = 0;
  float tile[2][2] = {};
  for (int k = 0; k < 2; ++k) {
    const float a0 = a.at(0, k), a1 = a.at(1, k), b0 = b.at(k, 0), b1 = b.at(k, 1);
    tile[0][0] += a0 * b0, tile[0][1] += a0 * b1;
    tile[1][0] += a1 * b0, tile[1][1] += a1 * b1;
  }
  print_reads(out, "C4, all four elements together:  ", a, b);
}

}  // namespace gradus
