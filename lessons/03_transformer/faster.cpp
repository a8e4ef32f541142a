// Exercise 03.6, make it faster: kernels of your own in the CPU's kernel table, here softmax. This kernel is
// correct but slow. `make faster-03` says whether your kernels are correct, and how fast they are compared
// with the given ones.
#include "lessons/03_transformer/faster.h"

#include <algorithm>
#include <cmath>

namespace gradus {

// kernels/kernels.h defines softmax_fwd and Write.
static void softmax_fwd(const Ctx& ctx, RowShape s, CBuf x, Out y) {
  if (x.t != DType::F32) return cpu_backend().softmax_fwd(ctx, s, x, y);  // your kernel may be for fp32 only
  for (int64_t r = 0; r < s.rows; ++r) {
    const float* in = x.as<float>() + r * s.cols;
    float* out = y.as<float>() + r * s.cols;
    const float max = *std::max_element(in, in + s.cols);
    float sum = 0;
    for (int64_t c = 0; c < s.cols; ++c) sum += std::exp(in[c] - max);
    for (int64_t c = 0; c < s.cols; ++c) {
      const float p = std::exp(in[c] - max) / sum;
      out[c] = y.w == Write::Set ? p : out[c] + p;
    }
  }
}

Backend my_backend() {
  Backend table = cpu_backend();
  table.softmax_fwd = softmax_fwd;
  return table;
}

}  // namespace gradus
