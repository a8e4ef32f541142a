#include "kernels/cuda/rows.h"

namespace gradus::GRADUS_GPU {

template <Write W, class T>
__global__ void softmax_fwd_kernel(int64_t cols, const T* x, T* y) {
  const int64_t row = blockIdx.x * cols;
  const ExpSum total = exp_sum(cols, x + row);
  const float factor = 1.0f / total.sum;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x)
    store<W>(y, row + c, expf(load(x, row + c) - total.shift) * factor);
}

void softmax_fwd(const Ctx& ctx, RowShape s, CBuf x, Out y) {
  check_dtype("softmax_fwd", x.t, {{"y", y}});
  visit_out("softmax_fwd", y, [&]<class T, Write W>() {
    launch(ctx, "softmax_fwd", unsigned(s.rows), row_threads(s.cols), 0, softmax_fwd_kernel<W, T>, s.cols,
           x.as<T>(), y.as<T>());
  });
}

template <Write W, class T>
__global__ void softmax_bwd_kernel(int64_t cols, const T* y, const T* dy, T* dx) {
  const int64_t row = blockIdx.x * cols;
  float dot = 0;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) dot += load(y, row + c) * load(dy, row + c);
  dot = block_sum(dot);
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x)
    store<W>(dx, row + c, load(y, row + c) * (load(dy, row + c) - dot));
}

void softmax_bwd(const Ctx& ctx, RowShape s, CBuf y, CBuf dy, Out dx) {
  check_dtype("softmax_bwd", dx.t, {{"y", y}, {"dy", dy}});
  visit_out("softmax_bwd", dx, [&]<class T, Write W>() {
    launch(ctx, "softmax_bwd", unsigned(s.rows), row_threads(s.cols), 0, softmax_bwd_kernel<W, T>, s.cols,
           y.as<T>(), dy.as<T>(), dx.as<T>());
  });
}

}  // namespace gradus::GRADUS_GPU
