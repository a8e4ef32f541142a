// Compiled with -ffp-contract=fast, alone of all files (Makefile): a product and the sum it goes to are one
// instruction, rounded once. Everywhere else they are rounded one after the other, as the contract of
// Write::Add needs.
#include "kernels/cpu/gemm_tile.h"

#include "kernels/check.h"

namespace gradus::cpu {

template <class S>
void multiply_tile(int64_t K, const S* __restrict a, const S* __restrict b, S* __restrict out) {
  using Vector = typename Tile<S>::Vector;
  constexpr int kLanes = Tile<S>::kLanes;
  Vector sum[kRows][kVectors] = {};
  // BEGIN SOLUTION 01.2
  for (int64_t k = 0; k < K; ++k, a += kRows, b += Tile<S>::kCols) {
    const Vector b0 = *reinterpret_cast<const Vector*>(b), b1 = *reinterpret_cast<const Vector*>(b + kLanes);
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      sum[i][0] += a[i] * b0;
      sum[i][1] += a[i] * b1;
    }
  }
  // STUB: todo("01.2", "for each k, add the outer product of kRows values of a and kCols of b", K, a, b, kLanes);
  // END SOLUTION 01.2
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i)
    for (int v = 0; v < kVectors; ++v)
      *reinterpret_cast<Vector*>(out + (i * kVectors + v) * kLanes) = sum[i][v];
}

template void multiply_tile(int64_t, const float*, const float*, float*);
template void multiply_tile(int64_t, const double*, const double*, double*);

}  // namespace gradus::cpu
