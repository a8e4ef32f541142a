// y = x + b; without x, y = b. linear() begins with that, then adds its product (src/ops/linear.cpp).
#include "kernels/cuda/rows.h"

namespace gradus::GRADUS_GPU {

template <Write W, class T>
__global__ void bias_fwd_kernel(int64_t cols, const T* x, const T* b, T* y) {
  const int64_t row = blockIdx.x * cols;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x)
    store<W>(y, row + c, (x ? load(x, row + c) : 0.0f) + load(b, c));
}

void bias_fwd(const Ctx& ctx, RowShape s, CBuf x, CBuf b, Out y) {
  check_dtype("bias_fwd", b.t, {{"x", x}, {"y", y}});
  visit_out("bias_fwd", y, [&]<class T, Write W>() {
    launch(ctx, "bias_fwd", unsigned(s.rows), row_threads(s.cols), 0, bias_fwd_kernel<W, T>, s.cols,
           x.as<T>(), b.as<T>(), y.as<T>());
  });
}

template <class T>
struct BiasBwd {
  static constexpr int kSums = 1;
  const T* dy;
  int64_t cols;
  __device__ void operator()(int64_t r, int64_t c, float* sums) const { sums[0] += load(dy, r * cols + c); }
};

void bias_bwd(const Ctx& ctx, RowShape s, CBuf dy, Out db) {
  if (!db.wanted()) return;
  check_t_or_fp32("bias_bwd", dy.t, {{"db", db}});
  visit_gpu("bias_bwd", dy.t, [&]<class T>() {
    partial_sums(ctx, "bias_bwd", s, BiasBwd<T>{dy.as<T>(), s.cols});
  });
  total_sums(ctx, "bias_bwd", s, 0, db);
}

}  // namespace gradus::GRADUS_GPU
