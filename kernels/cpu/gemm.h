// The hand-written matrix product (lesson 01): packed panels and a register tile, after Goto & van de Geijn
// 2008, "Anatomy of high-performance matrix multiplication".
//
// C[M,N] (+)= alpha op(A) op(B) is divided into tiles of kRows x kVectors vectors that stay in registers in
// the loop over K. Tiles read A and B in place if their numbers have the type of the arithmetic (fp32, or
// fp64 for fp64) and lie close enough to each other in memory. Else A and B are first copied ("packed") into
// panels in exactly the order in which the tile reads them, converted, and padded with zeros; so one inner
// loop serves every transposition, stride, size and dtype.
//
// Each element of C is a sum over K in blocks of at most 1024 words, in an order that depends on K alone: not
// on M, N, the batch or the number of threads, of which each computes a part of C. With Write::Add the
// finished sum is added to C, as the contract asks.
#pragma once
#include "kernels/kernels.h"

namespace gradus::cpu {

// One product without batches, on all threads (but in a parallel region, on the calling thread only).
// TA, TB, TC: the types of A, B and C. Strides are in elements: element (i, k) of op(A) is at a[i * a_row + k
// * a_col], element (k, j) of op(B) at b[k * b_row + j * b_col], and (i, j) of C at c[i * ldc + j].
template <class TA, class TB, class TC>
struct GemmProblem {
  int64_t M, N, K;
  const TA* a;
  int64_t a_row, a_col;
  const TB* b;
  int64_t b_row, b_col;
  TC* c;
  int64_t ldc;
  float alpha = 1;
  Write write = Write::Set;
};
// `workspace`, for the packed panels, has `bytes` bytes, at least gemm_bytes<S>(K); more give larger blocks.
// S, the type of the arithmetic, is double if all types are, else float.
template <class TA, class TB, class TC>
void gemm(const GemmProblem<TA, TB, TC>& problem, void* workspace, int64_t bytes);
template <class S>
int64_t gemm_bytes(int64_t K);
// The columns of B, in fp32, that stay in a core's L2 cache while rows of A in place pass through it.
int64_t gemm_columns(int64_t K);

}  // namespace gradus::cpu
