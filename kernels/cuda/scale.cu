#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

template <class T>
struct Scale {
  const T* x;
  float alpha;
  __device__ float operator()(int64_t i) const { return alpha * load(x, i); }
};

void scale(const Ctx& ctx, int64_t n, CBuf x, Out y, float alpha) {
  check_dtype("scale", y.t, {{"x", x}});
  visit_gpu("scale", y.t, [&]<class T>() { map<T>(ctx, "scale", n, y, Scale<T>{x.as<T>(), alpha}); });
}

}  // namespace gradus::GRADUS_GPU
