#include "kernels/cuda/gelu.h"
#include "kernels/cuda/rows.h"

namespace gradus::GRADUS_GPU {

void gelu_fwd(const Ctx& ctx, int64_t n, CBuf x, Out y) { map(ctx, "gelu_fwd", n, y, {{"x", x}}, GeluFwd()); }

void gelu_bwd(const Ctx& ctx, int64_t n, CBuf x, CBuf dy, Out dx) {
  map(ctx, "gelu_bwd", n, dx, {{"x", x}, {"dy", dy}}, GeluBwd());
}

template <Write W, class T>
__global__ void bias_gelu_fwd_kernel(int64_t cols, const T* x, const T* b, T* y) {
  const int64_t row = blockIdx.x * cols;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x)
    store<W>(y, row + c, GeluFwd()(load(x, row + c) + load(b, c)));
}
void bias_gelu_fwd(const Ctx& ctx, RowShape s, CBuf x, CBuf b, Out y) {
  check_dtype("bias_gelu_fwd", b.t, {{"x", x}, {"y", y}});
  visit_out("bias_gelu_fwd", y, [&]<class T, Write W>() {
    launch(ctx, "bias_gelu_fwd", unsigned(s.rows), row_threads(s.cols), 0, bias_gelu_fwd_kernel<W, T>, s.cols,
           x.as<T>(), b.as<T>(), y.as<T>());
  });
}

// One pass: a thread stores each gradient and adds it to the sum of the column.
template <Write W, class T>
struct BiasGeluBwd {
  static constexpr int kSums = 1;
  const T *x, *b, *dy;
  T* dx;
  int64_t cols;
  __device__ void operator()(int64_t r, int64_t c, float* sums) const {
    const int64_t i = r * cols + c;
    const float slope = GeluBwd()(load(x, i) + load(b, c), load(dy, i));
    if (dx) store<W>(dx, i, slope);
    sums[0] += slope;
  }
};
void bias_gelu_bwd(const Ctx& ctx, RowShape s, CBuf x, CBuf b, CBuf dy, Out dx, Out db) {
  constexpr const char* op = "bias_gelu_bwd";
  check_bias_gelu_bwd(x, b, dy, dx, db);
  visit_gpu(op, x.t, [&]<class T>() {
    visit_write(dx.w, [&]<Write W>() {
      partial_sums(ctx, op, s, BiasGeluBwd<W, T>{x.as<T>(), b.as<T>(), dy.as<T>(), dx.as<T>(), s.cols});
    });
  });
  if (db.wanted()) total_sums(ctx, op, s, 0, db);
}

}  // namespace gradus::GRADUS_GPU
