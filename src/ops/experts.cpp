// A mixture of experts (Shazeer et al. 2017, "Outrageously large neural networks"), whose shapes do not
// depend on what the tokens choose.
//   choose_experts: each token chooses the experts of its `chosen` largest logits; its weights are softmax
//     over these (Jiang et al. 2024, "Mixtral of experts", sec. 2.1).   dlogits: softmax's gradient, 0 for
//     the other experts.   saves: experts, weights.
//   dispatch: copies each token's row to the places that the token got; empty places are 0.   dx[t]: the sum
//     of dy over the token's places.   saves: slots.
//   combine_experts: y[t] = sum_j weights[t,j] rows[slots[t,j]].   drows[slots[t,j]] = weights[t,j] dy[t],
//     dweights[t,j] = rows[slots[t,j]] . dy[t].   saves: slots; rows if the weights want a gradient;
//     weights and tokens if the rows want one.
//   balance_loss: alpha E mean_b sum_e f[b,e] P[b,e] (Fedus et al. 2022, "Switch Transformers", eq. 4 to 6):
//     f is the share of choices that fell on an expert, P the mean of softmax(logits). Only P has a gradient.
//     saves: logits, experts. With `count` the mean over sequences is a sum times T / count: the loss of a
//     micro-batch is then its share of the whole batch's loss.
#include "kernels/checks.h"
#include "src/ops/ops.h"

namespace gradus {

Routing choose_experts(const Tensor& logits, int64_t chosen, int64_t capacity) {
  const ProfileRange range("choose_experts");
  check(logits.shape().rank() == 3, "choose_experts: logits are ", logits.shape(),
        "; they must be (B, T, E)");
  const ExpertShape s{logits.shape()[0], logits.shape()[1], logits.last(), chosen, capacity};
  check_expert_shape("choose_experts", s);
  const Shape choices{s.B, s.T, s.chosen};
  Tensor experts = empty(logits, choices, DType::I32, "experts"),
         weights = empty(logits, choices, "experts.weights"),
         slots = empty(logits, choices, DType::I32, "experts.slots"),
         tokens = empty(logits, {s.E, s.B, s.capacity}, DType::I32, "experts.tokens");
  be(logits).choose_experts_fwd(ctx(logits, cost::choose_experts_fwd(s, logits.dtype())), s, logits.in(),
                                experts.set(), weights.set());
  be(logits).place_tokens(ctx(logits, cost::place_tokens(s)), s, experts.in(), slots.set(), tokens.set());
  weights = record("choose_experts", {logits}, {{experts, needed_by(logits)}, {weights, needed_by(logits)}},
                   weights, [s](const Node& n, const Tensor& dy, Grads& dx) {
                     const Out dlogits = dx.out(0);
                     be(dy).choose_experts_bwd(ctx(dy, cost::choose_experts_bwd(s, dy.dtype())), s,
                                               n.saved[0].in(), n.saved[1].in(), dy.in(), dlogits);
                   });
  return {s, experts, weights, slots, tokens};
}

Tensor dispatch(const Tensor& x, const Routing& routing) {
  const ProfileRange range("dispatch");
  const ExpertShape& s = routing.shape;
  check(x.shape().rank() == 3 && x.shape()[0] == s.B && x.shape()[1] == s.T, "dispatch: x is ", x.shape(),
        "; the routing is of ", s.B, " sequences of ", s.T, " tokens");
  Tensor y = empty(x, {s.E, s.B, s.capacity, x.last()}, "dispatch");
  be(x).embedding_fwd(ctx(x, cost::embedding_fwd(y.rows(), y.dtype())), y.rows(), s.tokens(), x.in(),
                      routing.tokens.in(), y.set());
  return record("dispatch", {x}, {{routing.slots, needed_by(x)}}, y,
                [s](const Node& n, const Tensor& dy, Grads& dx) {
                  const Out to = dx.out(0);
                  be(dy).combine_experts_fwd(ctx(dy, cost::combine_experts_fwd(s, dy.last(), dy.dtype())), s,
                                             dy.last(), dy.in(), n.saved[0].in(), {nullptr, dy.dtype()}, to);
                });
}

Tensor combine_experts(const Tensor& rows, const Routing& routing) {
  const ProfileRange range("combine_experts");
  const ExpertShape& s = routing.shape;
  const int64_t C = rows.last();
  check(rows.shape() == Shape{s.E, s.B, s.capacity, C}, "combine_experts: the rows are ", rows.shape(),
        "; the routing is of ", s.E, " experts, ", s.B, " sequences and a capacity of ", s.capacity);
  const Tensor& weights = routing.weights;
  Tensor y = empty(rows, {s.B, s.T, C}, "combine_experts");
  be(rows).combine_experts_fwd(ctx(rows, cost::combine_experts_fwd(s, C, rows.dtype())), s, C, rows.in(),
                               routing.slots.in(), weights.in(), y.set());
  return record("combine_experts", {rows, weights},
                {{rows, needed_by(weights)},
                 {routing.slots, needed_by(rows, weights)},
                 {routing.tokens, needed_by(rows)},
                 {weights, needed_by(rows)}},
                y, [s](const Node& n, const Tensor& dy, Grads& dx) {
                  const Out drows = dx.out(0), dweights = dx.out(1);
                  const CBuf rows = in_or_none(n.saved[0].tensor), slots = n.saved[1].in(),
                             tokens = in_or_none(n.saved[2].tensor), weights = in_or_none(n.saved[3].tensor);
                  be(dy).combine_experts_bwd(ctx(dy, cost::combine_experts_bwd(s, dy.last(), dy.dtype())), s,
                                             dy.last(), rows, slots, tokens, weights, dy.in(), drows,
                                             dweights);
                });
}

Tensor balance_loss(const Tensor& logits, const Routing& routing, double alpha, const Tensor& count) {
  const ProfileRange range("balance_loss");
  const ExpertShape& s = routing.shape;
  check(logits.shape() == Shape{s.B, s.T, s.E}, "balance_loss: the logits are ", logits.shape(),
        "; the routing is of ", s.B, " sequences of ", s.T, " tokens and ", s.E, " experts");
  const DType stats = statistics_dtype(logits.dtype());
  check(!count.defined() || (count.numel() == 1 && count.dtype() == stats), "balance_loss: count is ",
        count.shape(), " ", name_of(count.dtype()), "; it is one number in ", name_of(stats),
        ", how many tokens the batch has");
  Tensor loss = empty(logits, {}, stats, "balance_loss");
  be(logits).balance_loss_fwd(ctx(logits, cost::balance_loss_fwd(s, logits.dtype())), s, logits.in(),
                              routing.experts.in(), in_or_none(count), loss.set(), float(alpha));
  return record(
      "balance_loss", {logits},
      {{logits, needed_by(logits)}, {routing.experts, needed_by(logits)}, {count, needed_by(logits)}}, loss,
      [s, alpha = float(alpha)](const Node& n, const Tensor& dloss, Grads& dx) {
        const CBuf logits = n.saved[0].in();
        const Out dlogits = dx.out(0);
        be(dloss).balance_loss_bwd(ctx(dloss, cost::balance_loss_bwd(s, logits.t)), s, logits,
                                   n.saved[1].in(), in_or_none(n.saved[2].tensor), dloss.in(), dlogits,
                                   alpha);
      });
}

}  // namespace gradus
