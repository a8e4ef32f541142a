#include "kernels/cpu/io.h"

namespace gradus::cpu {

template <class T>
[[gnu::flatten, gnu::noinline]] static double sum_squares(int64_t n, const T* g) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += double(load(g, i)) * double(load(g, i));
  return sum;
}

// The sum of squares of one gradient, in fp64 (fp32 squares overflow from 2^64 on): the sums of a fixed
// number of pieces, added in order.
template <class T>
static double gradient_squares(int64_t n, const T* g) {
  constexpr int64_t kPieces = 64;
  double partial[kPieces];
  parallel_for(kPieces, kGrain * kPieces / std::max<int64_t>(n, 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t from = n * p / kPieces, to = n * (p + 1) / kPieces;
      partial[p] = sum_squares(to - from, g + from);
    }
  });
  double sum = 0;
  for (const double s : partial) sum += s;
  return sum;
}

void sum_squares(const Ctx&, BufList grads, Out sum) {
  check_dtype("sum_squares", DType::F64, {{"sum", sum}});
  double s = 0;
  for (int64_t i = 0; i < grads.count; ++i)
    visit_float("sum_squares", grads.items[i].t,
                [&]<class T>() { s += gradient_squares(grads.sizes[i], grads.items[i].as<T>()); });
  if (sum.wanted()) *sum.as<double>() = sum.w == Write::Add ? *sum.as<double>() + s : s;
}

void clip_factor(const Ctx& ctx, int64_t n, CBuf sums, float max_norm) {
  check_dtype("clip_factor", DType::F64, {{"sums", sums}});
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += sums.as<double>()[i];
  const double scale = ctx.scalars->loss_scale, norm = std::sqrt(sum) / scale;
  ctx.update->grad_norm = float(norm);
  // A norm that is not a number must not hide behind a factor of 1: it is passed on.
  const double factor = max_norm / (norm + 1e-6);
  ctx.update->clip_factor = float((max_norm > 0 && !(factor >= 1) ? factor : 1) / scale);
}

}  // namespace gradus::cpu
