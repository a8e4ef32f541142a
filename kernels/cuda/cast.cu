#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

struct Same {
  __device__ float operator()(float x) const { return x; }
};

void cast(const Ctx& ctx, int64_t n, CBuf x, Out y) {
  visit_gpu("cast", x.t, [&]<class X>() {
    visit_gpu("cast", y.t, [&]<class Y>() { map_as<Y>(ctx, "cast", n, y, Same(), x.as<X>()); });
  });
}

// A block takes kThreads elements, which may be in several rows.
template <Write W, class X, class Y>
__global__ void cast_columns_kernel(RowShape s, int64_t x_row, const X* x, int64_t y_row, Y* y) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, r = i / s.cols, c = i % s.cols;
  if (r < s.rows) store<W>(y, r * y_row + c, load(x, r * x_row + c));
}

void cast_columns(const Ctx& ctx, RowShape s, int64_t x_row, CBuf x, int64_t y_row, Out y) {
  visit_gpu("cast_columns", x.t, [&]<class X>() {
    visit_out("cast_columns", y, [&]<class Y, Write W>() {
      launch(ctx, "cast_columns", blocks_for(s.rows * s.cols, kThreads), kThreads, 0,
             cast_columns_kernel<W, X, Y>, s, x_row, x.as<X>(), y_row, y.as<Y>());
    });
  });
}

}  // namespace gradus::GRADUS_GPU
