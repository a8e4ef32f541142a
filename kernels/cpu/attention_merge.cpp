#include "kernels/cpu/attention.h"

namespace gradus::cpu {

void attention_merge_inplace(const Ctx&, const AttentionShape& s, CBuf y, CBuf lse, Out sum, Out total) {
  check_attention_merge_inplace(s, y, lse, sum, total);
  visit_float("attention_merge_inplace", y.t, [&]<class T>() {
    using A = acc_t<T>;
    const int64_t grain = std::max<int64_t>(kGrain / std::max<int64_t>(s.D, 1), 1);
    parallel_for(s.B * s.H * s.T, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t b = i / s.T / s.H, h = i / s.T % s.H, t = i % s.T;
        const A before = total.as<A>()[i], here = lse.as<A>()[i], most = std::max(before, here);
        if (here == -INFINITY) continue;
        const A both = most + std::log(std::exp(before - most) + std::exp(here - most));
        const A keep = std::exp(before - both), take = std::exp(here - both);
        A* const to = sum.as<A>() + at(s.y, b, h) + t * s.y.time;
        const T* const from = y.as<T>() + ((b * s.T + t) * s.H + h) * s.D;
        for (int64_t d = 0; d < s.D; ++d) to[d] = keep * to[d] + take * load(from, d);
        total.as<A>()[i] = both;
      }
    });
  });
}

}  // namespace gradus::cpu
