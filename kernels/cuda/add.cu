#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

template <class T>
struct Add {
  const T *a, *b;
  __device__ float operator()(int64_t i) const { return load(a, i) + load(b, i); }
};

void add(const Ctx& ctx, int64_t n, CBuf a, CBuf b, Out y) {
  check_dtype("add", y.t, {{"a", a}, {"b", b}});
  visit_gpu("add", y.t, [&]<class T>() { map<T>(ctx, "add", n, y, Add<T>{a.as<T>(), b.as<T>()}); });
}

}  // namespace gradus::GRADUS_GPU
