#include "kernels/cpu/io.h"

namespace gradus::cpu {

// d = momentum m + (1 - momentum) g'; with d = m this is the next momentum. Returns the sum of d's squares.
template <class A>
[[gnu::flatten, gnu::noinline]] static double blend(int64_t n, A clip, A momentum, const A* g, const A* m,
                                                    A* d) {
  double squares = 0;  // fp32 squares overflow from 2^64 on
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < n; ++i) {
    d[i] = momentum * m[i] + (1 - momentum) * (clip * g[i]);
    squares += double(d[i]) * double(d[i]);
  }
  return squares;
}

template <class A>
[[gnu::flatten, gnu::noinline]] static void divide(int64_t n, A norm, A* d) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) d[i] /= norm;
}

// Calls f(at, n, g, m, d) for each chunk of the elements from `begin` to `end`; f may write to the array d.
template <class A, class F>
static void for_chunks(int64_t begin, int64_t end, CBuf grad, Out m, F f) {
  A stage[3][kChunk];
  for (int64_t at = begin; at < end; at += kChunk) {
    const int64_t n = std::min(kChunk, end - at);
    f(at, n, read("muon_direction", grad, at, n, stage[0]), read("muon_direction", m, at, n, stage[1]),
      stage[2]);
  }
}

// Updates the momentum; returns the sum of the squares of d: a fixed number of pieces, added in order.
template <class A>
static double advance(const Ctx& ctx, int64_t n, CBuf grad, Out m, A momentum) {
  constexpr int64_t kPieces = cost::kNormBlocks;
  const A clip = ctx.update->clip_factor;
  double* const squares = static_cast<double*>(ctx.scratch);
  const auto piece = [&](int64_t p) {
    squares[p] = 0;
    for_chunks<A>(n * p / kPieces, n * (p + 1) / kPieces, grad, m,
                  [&](int64_t at, int64_t count, const A* g, A* kept, A*) {
                    blend(count, clip, momentum, g, kept, kept);
                    write_back("muon_direction", count, kept, m, at);
                    for_chunks<A>(at, at + count, grad, m,  // with the rounded m
                                  [&](int64_t, int64_t, const A* g, const A* kept, A* d) {
                                    squares[p] += blend(count, clip, momentum, g, kept, d);
                                  });
                  });
  };
  parallel_for(kPieces, kGrain * kPieces / std::max<int64_t>(n, 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) piece(p);
  });
  double sum = 0;
  for (int64_t p = 0; p < kPieces; ++p) sum += squares[p];
  return sum;
}

template <class A>
static void direction_as(const Ctx& ctx, int64_t n, CBuf grad, Out m, Out direction, A momentum) {
  const double norm = std::sqrt(advance(ctx, n, grad, m, momentum));
  const A divisor = A(norm < 1e-7 ? 1e-7 : norm), clip = ctx.update->clip_factor;
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    for_chunks<A>(begin, end, grad, m, [&](int64_t at, int64_t count, const A* g, const A* kept, A* d) {
      blend(count, clip, momentum, g, kept, d);
      divide(count, divisor, d);
      write("muon_direction", count, d, direction, at);
    });
  });
}

void muon_direction(const Ctx& ctx, int64_t n, CBuf grad, Out m, Out direction, float momentum) {
  for (const DType t : {grad.t, m.t, direction.t}) visit_float("muon_direction", t, [&]<class T>() {});
  if (ctx.update->skip) return;
  if (grad.t == DType::F64)
    direction_as<double>(ctx, n, grad, m, direction, momentum);
  else
    direction_as<float>(ctx, n, grad, m, direction, momentum);
}

}  // namespace gradus::cpu
