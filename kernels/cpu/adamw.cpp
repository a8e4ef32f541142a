#include "kernels/cpu/io.h"

namespace gradus::cpu {

// The numbers of one step, the same for all parameters.
template <class A>
struct AdamWStep {
  AdamWStep(const StepScalars& s, const AdamWArgs& args)
      : lr(s.learning_rate),
        clip(s.clip_factor),
        beta1(args.beta1),
        beta2(args.beta2),
        eps(args.eps),
        decay(A(1) - A(s.learning_rate) * A(args.weight_decay)),
        m_factor(A(1 / (1 - std::pow(double(args.beta1), double(s.step))))),
        v_factor(A(1 / (1 - std::pow(double(args.beta2), double(s.step))))) {}
  A lr, clip, beta1, beta2, eps, decay, m_factor, v_factor;
};

// T: the value's type, G: the gradient's, M: the type of the states and of what is updated (master or value).
template <class T, class G, class M>
static void adamw_one(const AdamWStep<acc_t<M>>& s, const ParamUpdate& u) {
  using A = acc_t<M>;
  const A decay = u.decay ? s.decay : A(1);
  parallel_for(u.n, kGrain, [&](int64_t begin, int64_t end) {
    M* w = u.master.wanted() ? u.master.as<M>() : u.value.as<M>();
    M *m = u.m.as<M>(), *v = u.v.as<M>();
    const G* grad = u.grad.as<G>();
    const AdamWStep<A> k = s;
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      // BEGIN SOLUTION 03.2
      const A g = k.clip * A(grad[i]);
      const A mi = k.beta1 * A(m[i]) + (A(1) - k.beta1) * g;
      const A vi = k.beta2 * A(v[i]) + (A(1) - k.beta2) * g * g;
      m[i] = M(mi);
      v[i] = M(vi);
      w[i] = M(decay * A(w[i]) - k.lr * (mi * k.m_factor) / (std::sqrt(vi * k.v_factor) + k.eps));
      // STUB: todo("03.2", "update m, v and w from the gradient", decay, w, m, v, grad, k, i);
      // END SOLUTION 03.2
    }
    if (u.master.wanted())
      for (int64_t i = begin; i < end; ++i) u.value.as<T>()[i] = T(acc_t<T>(w[i]));
  });
}

void adamw(const Ctx& ctx, ParamList list, AdamWArgs args) {
  for (int64_t i = 0; i < list.count; ++i) {
    const ParamUpdate& u = list.items[i];
    const DType t = u.master.wanted() ? u.master.t : u.value.t;
    check_dtype("adamw", t, u.m.t, u.m.p, "the first moment");
    check_dtype("adamw", t, u.v.t, u.v.p, "the second moment");
    visit_float("adamw", u.value.t, [&]<class T>() {
      visit_float("adamw", u.grad.t, [&]<class G>() {
        if (u.master.wanted()) return adamw_one<T, G, float>(AdamWStep<float>(*ctx.scalars, args), u);
        adamw_one<T, G, T>(AdamWStep<acc_t<T>>(*ctx.scalars, args), u);
      });
    });
  }
}

}  // namespace gradus::cpu
