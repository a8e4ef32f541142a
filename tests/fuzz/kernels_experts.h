// The harness of the kernels: a mixture of experts.
#pragma once
#include "tests/fuzz/kernels.h"

namespace gradus::fuzz {

inline ExpertShape expert_shape(Draw& d) {
  ExpertShape s{.B = d.pick(0, 3), .T = d.pick(1, 40), .E = d.pick(1, 40), .chosen = 0, .capacity = 0};
  if (d.pick(0, 15) == 0) s.T = d.pick(250, 530), s.B = 1;
  s.chosen = d.choices.yes() ? d.pick(1, std::min<int64_t>(s.E, 3)) : d.pick(1, s.E);
  s.capacity = d.pick(0, s.T);
  return s;
}
// Distinct experts for each token, and their places: one output of the cpu, which the tests of the kernels
// check.
inline Array chosen(Draw& d, const ExpertShape& s) {
  const Array logits = d.array(DType::F32, s.tokens() * s.E);
  return computed(d, DType::I32, s.choices(), cost::choose_experts_fwd(s, DType::F32),
                  [&](CallCtx& c, Out out) {
                    cpu_backend().choose_experts_fwd(c, s, logits.in(), out, {nullptr, DType::F32});
                  });
}
inline Array placed(Draw& d, const ExpertShape& s, const Array& experts, bool slots) {
  return computed(d, DType::I32, slots ? s.choices() : s.places(), cost::place_tokens(s),
                  [&](CallCtx& c, Out out) {
                    const Out none{nullptr, DType::I32};
                    cpu_backend().place_tokens(c, s, experts.in(), slots ? out : none, slots ? none : out);
                  });
}

// Indices as numbers, which are equal if the indices are: fp32 represents all below 2^24, and kElsewhere.
inline void copy_indices(const std::vector<int32_t>& from, Out to) {
  std::copy(from.begin(), from.end(), to.as<float>());
}
inline Call indices_of_experts(Draw& d, const ExpertShape& s) {
  const Result choices{DType::F32, s.choices(), 0, true}, places{DType::F32, s.places(), 0, true};
  if (d.choices.yes())
    return {"choose_experts_fwd",
            cost::choose_experts_fwd(s, d.t),
            {d.array(d.t, s.tokens() * s.E)},
            {choices},
            [s](const Backend& b, CallCtx& c, In in, Outs out) {
              std::vector<int32_t> experts(static_cast<size_t>(s.choices()));
              b.choose_experts_fwd(c, s, in[0], {experts.data(), DType::I32}, {nullptr, in[0].t});
              copy_indices(experts, out[0]);
            }};
  return {"place_tokens",
          cost::place_tokens(s),
          {chosen(d, s)},
          {choices, places},
          [s](const Backend& b, CallCtx& c, In in, Outs out) {
            std::vector<int32_t> slots(static_cast<size_t>(s.choices())),
                tokens(static_cast<size_t>(s.places()));
            b.place_tokens(c, s, in[0], {slots.data(), DType::I32}, {tokens.data(), DType::I32});
            copy_indices(slots, out[0]), copy_indices(tokens, out[1]);
          }};
}

inline Call choose_experts(Draw& d) {
  const ExpertShape s = expert_shape(d);
  const double chosen_ones = double(s.chosen);
  switch (d.pick(0, 2)) {
    case 0: return indices_of_experts(d, s);
    case 1:
      return {"choose_experts_fwd",
              cost::choose_experts_fwd(s, d.t),
              {d.array(d.t, s.tokens() * s.E, -4, 4)},
              {{d.t, s.choices(), kEps * (chosen_ones + 64)}},
              [s](const Backend& b, CallCtx& c, In in, Outs out) {
                b.choose_experts_fwd(c, s, in[0], {nullptr, DType::I32}, out[0]);
              }};
    default:  // the weights are probabilities, which sum to at most 2, so w dw sums to at most 4
      return {"choose_experts_bwd",
              {},
              {chosen(d, s), d.array(d.t, s.choices(), 0, 2 / chosen_ones), d.array(d.t, s.choices())},
              {{d.t, s.tokens() * s.E, kEps * (chosen_ones + 8) * 8 / chosen_ones}},
              [s](const Backend& b, CallCtx& c, In in, Outs out) {
                b.choose_experts_bwd(c, s, in[0], in[1], in[2], out[0]);
              }};
  }
}

inline Call combine_experts(Draw& d) {
  const ExpertShape s = expert_shape(d);
  const int64_t cols = d.size(80);
  const Array experts = chosen(d, s), slots = placed(d, s, experts, true),
              rows = d.array(d.t, s.places() * cols), weights = d.array(d.t, s.choices());
  if (d.choices.yes())
    return {
        "combine_experts_fwd",
        cost::combine_experts_fwd(s, cols, d.t),
        {rows, slots, weights},
        {{d.t, s.tokens() * cols, 4 * kEps * double(s.chosen * (s.chosen + 2))}},
        [s, cols, weighted = d.choices.yes()](const Backend& b, CallCtx& c, In in, Outs out) {
          b.combine_experts_fwd(c, s, cols, in[0], in[1], weighted ? in[2] : CBuf{nullptr, in[2].t}, out[0]);
        }};
  return {"combine_experts_bwd",
          cost::combine_experts_bwd(s, cols, d.t),
          {rows, slots, placed(d, s, experts, false), weights, d.array(d.t, s.tokens() * cols)},
          {{d.t, s.places() * cols, 4 * kEps}, {d.t, s.choices(), 4 * kEps * double(cols * (cols + 2))}},
          [s, cols](const Backend& b, CallCtx& c, In in, Outs out) {
            b.combine_experts_bwd(c, s, cols, in[0], in[1], in[2], in[3], in[4], out[0], out[1]);
          }};
}

// Probabilities, shares of choices and their products are at most 1; factors at most 2 E / count.
inline Call balance_loss(Draw& d) {
  const ExpertShape s = expert_shape(d);
  const Array logits = d.array(d.t, s.tokens() * s.E, -4, 4), experts = chosen(d, s),
              count = d.array(DType::F32, 1, 1, 40);
  const double error = 2 * double(s.E) * kEps * (double(s.E) + 64);
  const bool counted = d.choices.yes();
  if (d.choices.yes())
    return {"balance_loss_fwd",
            cost::balance_loss_fwd(s, d.t),
            {logits, experts, count},
            {{DType::F32, 1, double(std::max<int64_t>(s.tokens(), 1)) * error}},
            [=](const Backend& b, CallCtx& c, In in, Outs out) {
              b.balance_loss_fwd(c, s, in[0], in[1], counted ? in[2] : CBuf{}, out[0], 1);
            }};
  return {"balance_loss_bwd",
          cost::balance_loss_bwd(s, d.t),
          {logits, experts, count, d.array(DType::F32, 1)},
          {{d.t, s.tokens() * s.E, 2 * error}},
          [=](const Backend& b, CallCtx& c, In in, Outs out) {
            b.balance_loss_bwd(c, s, in[0], in[1], counted ? in[2] : CBuf{}, in[3], out[0], 1);
          }};
}

}  // namespace gradus::fuzz
