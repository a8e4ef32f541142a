#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

struct Scale {
  float alpha;
  __device__ float operator()(float x) const { return alpha * x; }
};

void scale(const Ctx& ctx, int64_t n, CBuf x, Out y, float alpha) {
  map(ctx, "scale", n, y, {{"x", x}}, Scale{alpha});
}

}  // namespace gradus::GRADUS_GPU
