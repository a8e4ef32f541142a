// The CPU's rungs: five ways to write C = A B by hand, from three plain loops to the engine's kernel, and a
// library. All matrices are square (n, n), fp32, row-major. All rungs compute the same sums; they differ only
// in the order in which they access memory.
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
  // FLOPs per byte that moves between memory and the L2 cache, for matrices that do not fit into the cache.
  double (*intensity)(double n);
  bool fast;  // false: it would take minutes at every size, so it runs only up to n = 1024
};

// C7, a variant of C5: A and B in bf16, sums and C in fp32. With kHasPairs (kernels/cpu/gemm_tile.h) its
// innermost instruction multiplies and adds twice as many numbers; without, C7 converts the numbers to fp32.
void pairs(int64_t n, const bf16* a, const bf16* b, float* c);

std::vector<Rung> rungs();     // with the library only if it is built in
std::vector<Rung> my_rungs();  // the same, with yours from faster.cpp (exercise 01.9)

}  // namespace gradus
