#include "kernels/cpu/io.h"

namespace gradus::cpu {

template <class T, class G, class M>
static void sgd_one(const StepScalars& scalars, const ParamUpdate& u, SgdArgs args) {
  using A = acc_t<M>;
  const A lr = scalars.learning_rate, clip = scalars.clip_factor, mu = args.momentum;
  const A wd = u.decay ? args.weight_decay : 0;
  parallel_for(u.n, kGrain, [&](int64_t begin, int64_t end) {
    M* w = u.master.wanted() ? u.master.as<M>() : u.value.as<M>();
    M* m = u.m.as<M>();
    const G* g = u.grad.as<G>();
    for (int64_t i = begin; i < end; ++i) {
      A step = clip * A(g[i]) + wd * A(w[i]);
      if (m) m[i] = M(step += mu * A(m[i]));
      w[i] = M(A(w[i]) - lr * step);
      if (u.master.wanted()) u.value.as<T>()[i] = T(acc_t<T>(w[i]));
    }
  });
}

void sgd(const Ctx& ctx, ParamList list, SgdArgs args) {
  for (int64_t i = 0; i < list.count; ++i) {
    const ParamUpdate& u = list.items[i];
    const DType m = u.master.wanted() ? u.master.t : u.value.t;
    check_dtype("sgd", m, u.m.t, u.m.p, "the momentum");
    visit_float("sgd", u.value.t, [&]<class T>() {
      visit_float("sgd", u.grad.t, [&]<class G>() {
        if (u.master.wanted()) return sgd_one<T, G, float>(*ctx.scalars, u, args);
        sgd_one<T, G, T>(*ctx.scalars, u, args);
      });
    });
  }
}

}  // namespace gradus::cpu
