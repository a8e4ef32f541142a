#include "kernels/cuda/rows.h"

namespace gradus::GRADUS_GPU {

// A block takes a row of y with its gates and values.
template <Write W, class T>
__global__ void swiglu_fwd_kernel(int64_t cols, const T* x, T* y) {
  const T *gate = x + blockIdx.x * 2 * cols, *value = gate + cols;
  y += blockIdx.x * cols;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
    const float g = load(gate, c);
    store<W>(y, c, g / (1.0f + expf(-g)) * load(value, c));
  }
}
void swiglu_fwd(const Ctx& ctx, RowShape s, CBuf x, Out y) {
  check_dtype("swiglu_fwd", x.t, {{"y", y}});
  visit_out("swiglu_fwd", y, [&]<class T, Write W>() {
    launch(ctx, "swiglu_fwd", unsigned(s.rows), row_threads(s.cols), 0, swiglu_fwd_kernel<W, T>, s.cols,
           x.as<T>(), y.as<T>());
  });
}

template <Write W, class T>
__global__ void swiglu_bwd_kernel(int64_t cols, const T* x, const T* dy, T* dx) {
  const T *gate = x + blockIdx.x * 2 * cols, *value = gate + cols;
  T *dgate = dx + blockIdx.x * 2 * cols, *dvalue = dgate + cols;
  dy += blockIdx.x * cols;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
    const float g = load(gate, c), s = 1.0f / (1.0f + expf(-g)), silu = g * s, d = load(dy, c);
    store<W>(dgate, c, d * load(value, c) * (s + silu * (1 - s)));
    store<W>(dvalue, c, d * silu);
  }
}
void swiglu_bwd(const Ctx& ctx, RowShape s, CBuf x, CBuf dy, Out dx) {
  check_dtype("swiglu_bwd", x.t, {{"dy", dy}, {"dx", dx}});
  visit_out("swiglu_bwd", dx, [&]<class T, Write W>() {
    launch(ctx, "swiglu_bwd", unsigned(s.rows), row_threads(s.cols), 0, swiglu_bwd_kernel<W, T>, s.cols,
           x.as<T>(), dy.as<T>(), dx.as<T>());
  });
}

}  // namespace gradus::GRADUS_GPU
