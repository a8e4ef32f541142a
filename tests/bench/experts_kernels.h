// Timed kernels: a mixture of 8 experts, of which each token chooses 2. The experts have places for 25 % more
// tokens than they get if all are used equally.
#pragma once
#include <memory>

#include "tests/bench/kernel_data.h"

namespace gradus {

// The choices of the tokens and their places, from the kernels. They stay when the numbers in Data change.
struct BenchRouting {
  BenchRouting(Device& device, Data& d, const ExpertShape& s)
      : experts(device, DType::I32, s.choices()),
        slots(device, DType::I32, s.choices()),
        tokens(device, DType::I32, s.places()) {
    d.randomize();
    const BenchBuffer scratch(device, DType::U8, cost::place_tokens(s).scratch);
    Ctx ctx = device.ctx();
    ctx.scratch = scratch.out().p;
    d.k.choose_experts_fwd(ctx, s, d.x.in(), experts.out(), {nullptr, d.t});
    d.k.place_tokens(ctx, s, experts.in(), slots.out(), tokens.out());
    device.synchronize();
  }
  BenchBuffer experts, slots, tokens;
};

inline void add_experts(Device& device, Data& d, Cases& cases) {
  constexpr int64_t kT = 1024, kCols = 768, kCapacity = 320;
  const ExpertShape s{d.n / (8 * kCapacity * kCols), kT, 8, 2, kCapacity};
  const DType t = d.t;
  const Backend& k = d.k;
  const std::string logits = text({s.tokens(), s.E}), rows = text({s.tokens(), kCols});
  const auto r = std::make_shared<BenchRouting>(device, d, s);
  const CBuf weights = d.u.in(), dweights = d.u.in().from(s.choices());
  cases.insert(
      cases.end(),
      {{"choose_experts_fwd", logits, cost::choose_experts_fwd(s, t),
        [=, &k, &d](const Ctx& c) { k.choose_experts_fwd(c, s, d.x.in(), r->experts.out(), d.u.out()); }},
       {"choose_experts_bwd", logits, cost::choose_experts_bwd(s, t),
        [=, &k, &d](const Ctx& c) {
          k.choose_experts_bwd(c, s, r->experts.in(), weights, dweights, d.y.out());
        }},
       {"place_tokens", logits, cost::place_tokens(s),
        [=, &k](const Ctx& c) { k.place_tokens(c, s, r->experts.in(), r->slots.out(), r->tokens.out()); }},
       {"combine_experts_fwd", rows, cost::combine_experts_fwd(s, kCols, t),
        [=, &k, &d](const Ctx& c) {
          k.combine_experts_fwd(c, s, kCols, d.x.in(), r->slots.in(), weights, d.y.out());
        }},
       {"combine_experts_bwd", rows, cost::combine_experts_bwd(s, kCols, t),
        [=, &k, &d](const Ctx& c) {
          k.combine_experts_bwd(c, s, kCols, d.x.in(), r->slots.in(), r->tokens.in(), weights, d.y.in(),
                                d.z.out(), d.u.out(s.choices()));
        }},
       {"balance_loss_fwd", logits, cost::balance_loss_fwd(s, t),
        [=, &k, &d](const Ctx& c) {
          k.balance_loss_fwd(c, s, d.x.in(), r->experts.in(), {}, d.loss.out(), 1);
        }},
       {"balance_loss_bwd", logits, cost::balance_loss_bwd(s, t), [=, &k, &d](const Ctx& c) {
          k.balance_loss_bwd(c, s, d.x.in(), r->experts.in(), {}, d.loss.in(), d.y.out(), 1);
        }}});
}

}  // namespace gradus
