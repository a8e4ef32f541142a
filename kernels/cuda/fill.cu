#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

struct Fill {
  float value;
  __device__ float operator()(int64_t /*i*/) const { return value; }
};

void fill(const Ctx& ctx, int64_t n, Out y, double value) {
  visit_gpu("fill", y.t, [&]<class T>() { map_as<T>(ctx, "fill", n, y, Fill{float(value)}); });
}

}  // namespace gradus::GRADUS_GPU
