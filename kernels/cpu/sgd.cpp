#include "kernels/cpu/io.h"

namespace gradus::cpu {

template <class A>
struct SgdStep {
  SgdStep(const UpdateScalars& s, const SgdArgs& args, bool decays)
      : lr(s.learning_rate),
        clip(A(args.scale) * A(args.clips ? s.clip_factor : 1)),
        momentum(args.momentum),
        decay(decays ? args.weight_decay : 0),
        nesterov(args.nesterov) {}
  A lr, clip, momentum, decay;
  bool nesterov;
};

template <class A>
[[gnu::flatten, gnu::noinline]] static void sgd_chunk(SgdStep<A> k, int64_t n, A* w, const A* g) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) w[i] -= k.lr * (k.clip * g[i] + k.decay * w[i]);
}

template <class A>
[[gnu::flatten, gnu::noinline]] static void momentum_chunk(SgdStep<A> k, int64_t n, A* w, const A* g, A* m) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    // BEGIN SOLUTION 06.2
    const A step = k.clip * g[i] + k.decay * w[i];
    m[i] = k.momentum * m[i] + step;
    w[i] -= k.lr * (k.nesterov ? step + k.momentum * m[i] : m[i]);
    // STUB: todo("06.2", "update m and w from the gradient, Nesterov's way if k.nesterov", k, w, m, g, i);
    // END SOLUTION 06.2
  }
}

template <class A>
static void sgd_one(SgdStep<A> step, const ParamUpdate& u) {
  const Out& updated = u.master.wanted() ? u.master : u.value;
  parallel_for(u.n, kGrain, [&](int64_t begin, int64_t end) {
    A stage[3][kChunk];
    for (int64_t at = begin; at < end; at += kChunk) {
      const int64_t n = std::min(kChunk, end - at);
      A* w = read("sgd", updated, at, n, stage[0]);
      const A* g = read("sgd", u.grad, at, n, stage[1]);
      if (u.m.wanted()) {
        A* m = read("sgd", u.m, at, n, stage[2]);
        momentum_chunk(step, n, w, g, m);
        write_back("sgd", n, m, u.m, at);
      } else {
        sgd_chunk(step, n, w, g);
      }
      write_back("sgd", n, w, u.value, at);
    }
  });
}

void sgd(const Ctx& ctx, ParamList list, SgdArgs args) {
  for (int64_t i = 0; i < list.count; ++i) {
    const ParamUpdate& u = list.items[i];
    check_update("sgd", u);
    if (ctx.update->skip) continue;
    if (u.value.t == DType::F64)
      sgd_one(SgdStep<double>(*ctx.update, args, u.decay), u);
    else
      sgd_one(SgdStep<float>(*ctx.update, args, u.decay), u);
  }
}

}  // namespace gradus::cpu
