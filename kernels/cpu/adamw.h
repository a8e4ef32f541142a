// AdamW's arithmetic for a chunk of elements.
#pragma once
#include <cmath>

#include "kernels/cpu/io.h"

namespace gradus::cpu {

// The constants of one step, the same for all parameters.
template <class A>
struct AdamWStep {
  AdamWStep(const UpdateScalars& s, const AdamWArgs& args)
      : lr(s.learning_rate),
        clip(s.clip_factor),
        beta1(args.beta1),
        beta2(args.beta2),
        eps(args.eps),
        decay(A(1) - A(s.learning_rate) * A(args.weight_decay)),
        m_factor(A(1 / (1 - std::pow(double(args.beta1), double(s.updates))))),
        v_factor(A(1 / (1 - std::pow(double(args.beta2), double(s.updates))))) {}
  A lr, clip, beta1, beta2, eps, decay, m_factor, v_factor;
};

// decay: step.decay, or 1 for a parameter without weight decay.
template <class A>
void adamw_chunk(AdamWStep<A> step, A decay, int64_t n, A* w, const A* grad, A* m, A* v);

}  // namespace gradus::cpu
