// The rungs of the CPU's ladder: five ways to write C = A B by hand, from three plain loops to the engine's
// kernel, and a library. All matrices are square (n, n), fp32, row-major. Each rung computes the same sums;
// they differ only in the order in which they touch memory.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/dtype.h"

namespace gradus {

constexpr int64_t kBlock = 128;  // rows and columns of C3's blocks

struct Rung {
  std::string name;
  void (*multiply)(int64_t n, const float* a, const float* b, float* c);
  // FLOPs for each byte that comes from beyond the L2 cache, if the matrices do not fit into it.
  double (*intensity)(double n);
  bool fast;  // the others would take minutes at every size: they run up to n = 1024
};

// C7, a step aside: C5 with A and B in bf16, sums and C in fp32. With kHasPairs (kernels/cpu/gemm_tile.h) its
// innermost instruction multiplies and adds twice as many numbers; otherwise it converts them to fp32.
void pairs(int64_t n, const bf16* a, const bf16* b, float* c);

std::vector<Rung> rungs();     // the library only where it is built in
std::vector<Rung> my_rungs();  // the same with yours in their place: faster.cpp (exercise 01.4)

}  // namespace gradus
