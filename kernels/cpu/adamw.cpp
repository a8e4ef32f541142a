#include "kernels/cpu/adamw.h"

namespace gradus::cpu {

template <class A>
[[gnu::flatten, gnu::noinline]] void adamw_chunk(AdamWStep<A> k, A decay, int64_t n, A* w, const A* grad,
                                                 A* m, A* v) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    // BEGIN SOLUTION 03.2
    const A g = k.clip * grad[i];
    m[i] = k.beta1 * m[i] + (A(1) - k.beta1) * g;
    v[i] = k.beta2 * v[i] + (A(1) - k.beta2) * g * g;
    w[i] = decay * w[i] - k.lr * (m[i] * k.m_factor) / (std::sqrt(v[i] * k.v_factor) + k.eps);
    // STUB: todo("03.2", "update m, v and w from the gradient", decay, w, m, v, grad, k, i);
    // END SOLUTION 03.2
  }
}

template void adamw_chunk(AdamWStep<float>, float, int64_t, float*, const float*, float*, float*);

// Takes a chunk at a time, so that one loop serves any mix of dtypes of value, gradient, states and master.
template <class A>
static void adamw_one(const AdamWStep<A>& step, const ParamUpdate& u) {
  const Out& updated = u.master.wanted() ? u.master : u.value;
  parallel_for(u.n, kGrain, [&](int64_t begin, int64_t end) {
    A stage[4][kChunk];
    for (int64_t at = begin; at < end; at += kChunk) {
      const int64_t n = std::min(kChunk, end - at);
      A *w = read("adamw", updated, at, n, stage[0]), *m = read("adamw", u.m, at, n, stage[1]);
      A* v = read("adamw", u.v, at, n, stage[2]);
      adamw_chunk(step, u.decay ? step.decay : A(1), n, w, read("adamw", u.grad, at, n, stage[3]), m, v);
      write_back("adamw", n, m, u.m, at);
      write_back("adamw", n, v, u.v, at);
      write_back("adamw", n, w, u.value, at);
    }
  });
}

void adamw(const Ctx& ctx, ParamList list, AdamWArgs args) {
  check_updates("adamw", *ctx.update);
  for (int64_t i = 0; i < list.count; ++i) {
    const ParamUpdate& u = list.items[i];
    check_update("adamw", u);
    if (ctx.update->skip) continue;
    if (u.value.t == DType::F64)
      adamw_one(AdamWStep<double>(*ctx.update, args), u);
    else
      adamw_one(AdamWStep<float>(*ctx.update, args), u);
  }
}

}  // namespace gradus::cpu
