#include "lessons/19_tensor_parallel/runs.h"

namespace gradus {

// Returns a copy of a rank's columns: its part of each of `groups` groups of equal width, such as q, k and v.
static Tensor columns_of(const Tensor& x, int64_t groups, int64_t rank, int64_t t) {
  const int64_t all = x.last(), width = all / groups;
  const Part part = part_of(width, rank, t);
  Tensor y = empty(x, x.shape().with_last(groups * part.count), "columns of a part");
  const Out to = y.set();
  const RowShape s{x.rows().rows, part.count};
  for (int64_t g = 0; g < groups; ++g)
    be(x).cast_columns(ctx(x, cost::cast_columns(s, x.dtype(), y.dtype())), s, all,
                       x.in().from(g * width + part.begin), y.last(), to.from(g * part.count));
  return y;
}
// The same for rows, whose number is a multiple of t.
static Tensor rows_of(const Tensor& weight, int64_t groups, int64_t rank, int64_t t) {
  const int64_t rows = weight.shape()[0], in = weight.last();
  return columns_of(weight.reshape({1, rows * in}), groups, rank, t).reshape({rows / t, in});
}

static Tensor product(const Tensor& a, const Tensor& b) {
  const int64_t out = b.last(), in = a.last();
  Tensor y = empty(a, a.shape().with_last(out), "partial product");
  const MatmulShape s{.M = a.rows().rows, .N = out, .K = in, .lda = in, .ldb = out, .ldc = out};
  be(a).matmul(ctx(a, cost::matmul(s, a.dtype())), s, a.in(), b.in(), y.set());
  return y;
}
static Tensor untaped_linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}) {
  const NoTape nothing;
  return linear(x, weight, bias);
}
// Returns part(0) + part(1) + ..., added in this order.
template <class F>
static Tensor sum_of_parts(int64_t t, F part) {
  Tensor sum = part(0);
  for (int64_t r = 1; r < t; ++r) cast(part(r), sum.add());
  return sum;
}

// Computes dw = dy^T x and db, as any linear layer does; the saved tensors are x and W.
static void weight_gradients(const Node& n, const Tensor& dy, Grads& dx) {
  const int64_t out = dy.last(), in = n.inputs[0].shape[-1];
  const MatmulShape s{
      .M = out, .N = in, .K = dy.rows().rows, .ta = Trans::Yes, .lda = out, .ldb = in, .ldc = in};
  const Out dw = dx.out(1);
  be(dy).matmul(ctx(dy, cost::matmul(s, dy.dtype())), s, dy.in(), n.saved[0].in(), dw);
  if (!dx.wanted(2)) return;
  const Out db = dx.out(2);
  run(&Backend::bias_bwd, cost::bias_bwd, dy, dy.in(), db);
}

// x W^T + b, as copy_to_ranks and a product: backward, dx is the sum of t partial products dy W.
static Tensor first_in_parts(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t groups,
                             int64_t t) {
  const Tensor y = untaped_linear(x, weight, bias);
  return record("first_in_parts", {x, weight, bias}, {{x}, {weight}}, y,
                [groups, t](const Node& n, const Tensor& dy, Grads& dx) {
                  weight_gradients(n, dy, dx);
                  dx.pass(0, sum_of_parts(t, [&](int64_t r) {
                            return product(columns_of(dy, groups, r, t),
                                           rows_of(n.saved[1].tensor, groups, r, t));
                          }));
                });
}
// The sum of t partial products x W^T, then the bias, as a product and sum_from_ranks.
static Tensor second_in_parts(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t t) {
  Tensor y = sum_of_parts(
      t, [&](int64_t r) { return untaped_linear(columns_of(x, 1, r, t), columns_of(weight, 1, r, t)); });
  run(&Backend::bias_fwd, cost::bias_fwd, y, CBuf{}, bias.in(), y.add());
  return record("second_in_parts", {x, weight, bias}, {{x}, {weight}}, y,
                [](const Node& n, const Tensor& dy, Grads& dx) {
                  weight_gradients(n, dy, dx);
                  dx.pass(0, product(dy, n.saved[1].tensor));
                });
}
// cross_entropy that adds up the sum of exponentials of each row part by part.
static Tensor loss_in_parts(const Tensor& logits, const Tensor& targets, const Tensor& count, int64_t t) {
  const RowShape all = logits.rows();
  const DType stats = statistics_dtype(logits.dtype());
  std::vector<Tensor> parts, ids, lses;
  Tensor max = empty(logits, {all.rows}, stats, "max");
  std::vector<double> most(size_t(all.rows), -INFINITY);
  for (int64_t r = 0; r < t; ++r) {
    const Part part = part_of(all.cols, r, t);
    const RowShape s{all.rows, part.count};
    parts.push_back(columns_of(logits, 1, r, t));
    Tensor& local = ids.emplace_back(empty_like(targets, "local ids"));
    be(logits).local_ids(ctx(targets, cost::local_ids(all.rows)), all.rows, all.cols, part.begin, part.count,
                         targets.in(), local.set());
    Tensor& lse = lses.emplace_back(empty(logits, {all.rows}, stats, "part's lse"));
    be(logits).cross_entropy_fwd(ctx(logits, cost::cross_entropy_fwd(s, logits.dtype())), s,
                                 parts.back().in(), local.in(), count.in(), {nullptr, stats}, lse.set());
    const std::vector<double> values = to_host<double>(lse);
    for (size_t i = 0; i < values.size(); ++i) most[i] = std::max(most[i], values[i]);
  }
  copy_from_host(max, most);
  const Tensor sums = sum_of_parts(t, [&](int64_t r) {
    const RowShape s = parts[size_t(r)].rows();
    Tensor part = empty(logits, {2, all.rows}, stats, "sums");
    be(logits).cross_entropy_sums(ctx(logits, cost::cross_entropy_sums(s, logits.dtype())), s,
                                  parts[size_t(r)].in(), ids[size_t(r)].in(), lses[size_t(r)].in(), max.in(),
                                  part.set());
    return part;
  });
  Tensor loss = empty(logits, {}, stats, "loss"),
         lse = empty(logits, targets.shape(), stats, "cross_entropy.lse");
  be(logits).cross_entropy_of_sums(ctx(logits, cost::cross_entropy_of_sums(all.rows, stats)), all.rows,
                                   targets.in(), count.in(), max.in(), sums.in(), loss.set(), lse.set());
  return record("loss_in_parts", {logits}, {{logits}, {targets}, {lse}, {count}}, loss, cross_entropy_op_bwd);
}

struct FirstInParts : LinearVariant {
  int64_t groups, t;
  FirstInParts(int64_t groups, int64_t t) : groups(groups), t(t) {}
  Tensor operator()(const Linear& l, const Tensor& x) const override {
    return first_in_parts(x, l.weight.value, l.bias_value(), groups, t);
  }
};
struct SecondInParts : LinearVariant {
  int64_t t;
  explicit SecondInParts(int64_t t) : t(t) {}
  Tensor operator()(const Linear& l, const Tensor& x) const override {
    return second_in_parts(x, l.weight.value, l.bias_value(), t);
  }
};
struct EndsInParts : ModelEnds {
  int64_t t;
  explicit EndsInParts(int64_t t) : t(t) {}
  Tensor loss(const Tensor& x, const Tensor& weight, const Tensor& targets,
              const Tensor& count) const override {
    return loss_in_parts(first_in_parts(x, weight, {}, 1, t), targets, count, t);
  }
};

void add_in_parts(Transformer& model, int64_t t) {
  for (TransformerBlock& b : model.blocks) {
    b.c_attn.variant = std::make_unique<FirstInParts>(3, t);
    b.c_fc.variant = std::make_unique<FirstInParts>(1, t);
    b.c_proj.variant = std::make_unique<SecondInParts>(t);
    b.mlp_c_proj.variant = std::make_unique<SecondInParts>(t);
  }
  model.ends = std::make_unique<EndsInParts>(t);
}

}  // namespace gradus
