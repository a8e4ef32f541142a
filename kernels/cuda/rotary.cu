#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

// The table has, per position, dims/2 cosines, then dims/2 sines. The angles are computed in fp64: in fp32,
// t base^(-2i/dims) has an error of up to 1e-4 at t = 2048.
struct RotaryAngles {
  RotaryShape s;
  __device__ float operator()(int64_t i) const {
    const int64_t t = i / s.dims, j = i % s.dims, h = s.dims / 2;
    const double angle = double(s.first + t) * pow(s.base, -2.0 * double(j % h) / double(s.dims));
    return float(j < h ? cos(angle) : sin(s.inverse ? -angle : angle));
  }
};

// A block takes the q, k and v of one token.
template <Write W, class T>
__global__ void rotary_kernel(RotaryShape s, const float* table, const T* x, T* y) {
  const unsigned D = unsigned(s.D), dims = unsigned(s.dims), h = dims / 2;
  const unsigned turned = unsigned(s.H + s.KV) * D, width = turned + unsigned(s.KV) * D;
  const int64_t row = blockIdx.x;
  x += row * width, y += row * width, table += row % s.T * s.dims;
  for (unsigned c = threadIdx.x; c < width; c += blockDim.x) {
    const unsigned d = c < turned ? c % D : D;  // v does not turn
    float r = load(x, c);
    if (d < h)
      r = r * table[d] - load(x, c + h) * table[h + d];
    else if (d < dims)
      r = r * table[d - h] + load(x, c - h) * table[d];
    store<W>(y, c, r);
  }
}

void rotary(const Ctx& ctx, const RotaryShape& s, CBuf x, Out y) {
  check_rotary(s, x, y);
  visit_out("rotary", y, [&]<class T, Write W>() {
    map_as<float>(ctx, "rotary", s.T * s.dims, Out{ctx.scratch, DType::F32, Write::Set}, RotaryAngles{s});
    launch(ctx, "rotary", unsigned(s.B * s.T), kThreads, 0, rotary_kernel<W, T>, s,
           static_cast<const float*>(ctx.scratch), x.as<T>(), y.as<T>());
  });
}

}  // namespace gradus::GRADUS_GPU
