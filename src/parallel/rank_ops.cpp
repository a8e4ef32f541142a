#include "src/parallel/rank_ops.h"

namespace gradus {

// Returns x (a, b, n) as (b, a, n): collectives have the ranks outermost, tensors the samples.
static Tensor swapped(const Tensor& x, int64_t a, int64_t b) {
  const int64_t n = x.numel() / std::max<int64_t>(a * b, 1);
  if (a == 1 || b == 1) return x.reshape({b, a, n});
  Tensor y = empty(x, {b, a, n}, "swapped");
  const Out out = y.set();
  const RowShape s{b, n};
  for (int64_t i = 0; i < a; ++i)
    be(x).cast_columns(ctx(x, cost::cast_columns(s, x.dtype(), y.dtype())), s, n, x.in().from(i * b * n),
                       a * n, out.from(i * n));
  return y;
}

static Shape with_tokens(const Shape& x, int64_t T) { return {x[0], T, x[2]}; }
static void check_tokens(const char* op, const Shape& x) {
  check(x.rank() == 3, op, ": x is ", x, "; it must be (B,T,C)");
}

// The whole from the parts of all ranks; x is this rank's part.
static Tensor gathered(Comm& comm, const Tensor& x) {
  const int64_t B = x.shape()[0], T = x.shape()[1];
  const Tensor all = empty(x, {comm.size(), x.numel()}, "gathered");
  comm.all_gather(x, all)->wait();
  return swapped(all, comm.size(), B).reshape(with_tokens(x.shape(), comm.size() * T));
}
static Tensor empty_part(const Comm& comm, const Tensor& x) {
  const int64_t T = x.shape()[1], N = comm.size();
  check(T % N == 0, "ranks: ", T, " tokens cannot be divided among ", N, " ranks; use a multiple of ", N);
  return empty(x, with_tokens(x.shape(), T / N), "part of the tokens");
}
// This rank's part of the sum of all ranks' x.
static Tensor scattered(Comm& comm, const Tensor& x) {
  const Tensor y = empty_part(comm, x);
  const int64_t B = x.shape()[0], N = comm.size();
  comm.reduce_scatter(swapped(x.reshape({B, N, y.numel() / std::max<int64_t>(B, 1)}), B, N), y)->wait();
  return y;
}
static Tensor part_of_tokens(const Comm& comm, const Tensor& x) {
  Tensor y = empty_part(comm, x);
  const RowShape s{y.shape()[0], y.shape()[1] * y.last()};
  be(x).cast_columns(ctx(x, cost::cast_columns(s, x.dtype(), x.dtype())), s, comm.size() * s.cols,
                     x.in().from(comm.rank() * s.cols), s.cols, y.set());
  return y;
}

static Tensor summed(Comm& comm, const Tensor& x) {
  const Tensor sum = unshared(x);
  comm.all_reduce(sum)->wait();
  return sum;
}

// Adds the bias to y, a sum that has none yet, and records both as one op.
template <class Backward>
static Tensor with_bias(const char* op, const Tensor& x, Tensor y, const Tensor& bias, Backward dx_of) {
  if (bias.defined()) run(&Backend::bias_fwd, cost::bias_fwd, y, CBuf{}, bias.in(), y.add());
  return record(op, {x, bias}, {}, y, [dx_of](const Node&, const Tensor& dy, Grads& dx) {
    if (dx.wanted(0)) dx.pass(0, dx_of(dy));
    if (!dx.wanted(1)) return;
    const Out db = dx.out(1);
    run(&Backend::bias_bwd, cost::bias_bwd, dy, dy.in(), db);
  });
}

Tensor copy_to_ranks(Comm& comm, const Tensor& x) {
  const ProfileRange range("copy_to_ranks");
  return record("copy_to_ranks", {x}, {}, x, [ranks = &comm](const Node&, const Tensor& dy, Grads& dx) {
    dx.pass(0, summed(*ranks, dy));
  });
}

Tensor sum_from_ranks(Comm& comm, Tensor x, const Tensor& bias) {
  const ProfileRange range("sum_from_ranks");
  return with_bias("sum_from_ranks", x, summed(comm, x), bias, [](const Tensor& dy) { return dy; });
}

Tensor gather_tokens(Comm& comm, const Tensor& x) {
  const ProfileRange range("gather_tokens");
  check_tokens("gather_tokens", x.shape());
  return record(
      "gather_tokens", {x}, {}, gathered(comm, x),
      [ranks = &comm](const Node&, const Tensor& dy, Grads& dx) { dx.pass(0, scattered(*ranks, dy)); });
}

Tensor scatter_sum(Comm& comm, const Tensor& x, const Tensor& bias) {
  const ProfileRange range("scatter_sum");
  check_tokens("scatter_sum", x.shape());
  return with_bias("scatter_sum", x, scattered(comm, x), bias,
                   [ranks = &comm](const Tensor& dy) { return gathered(*ranks, dy); });
}

Tensor take_part(Comm& comm, const Tensor& x) {
  const ProfileRange range("take_part");
  check_tokens("take_part", x.shape());
  return record(
      "take_part", {x}, {}, part_of_tokens(comm, x),
      [ranks = &comm](const Node&, const Tensor& dy, Grads& dx) { dx.pass(0, gathered(*ranks, dy)); });
}

Tensor whole_tokens(Comm& comm, const Tensor& x) {
  const ProfileRange range("whole_tokens");
  check_tokens("whole_tokens", x.shape());
  return record(
      "whole_tokens", {x}, {}, gathered(comm, x),
      [ranks = &comm](const Node&, const Tensor& dy, Grads& dx) { dx.pass(0, part_of_tokens(*ranks, dy)); });
}

Tensor gathered_linear(Comm& comm, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const ProfileRange range("gathered_linear");
  check_tokens("gathered_linear", x.shape());
  Tensor y;
  {
    const NoTape nothing;
    y = linear(gathered(comm, x), weight, bias);
  }
  return record("gathered_linear", {x, weight, bias}, {{x, needed_by(weight)}, {weight, needed_by(x)}}, y,
                [ranks = &comm](const Node& n, const Tensor& dy, Grads& dx) {
                  const int64_t out = dy.last(), rows = dy.rows().rows, in = n.inputs[0].shape[-1];
                  if (dx.wanted(1)) {
                    const Tensor all = gathered(*ranks, n.saved[0].tensor);
                    const MatmulShape s{
                        .M = out, .N = in, .K = rows, .ta = Trans::Yes, .lda = out, .ldb = in, .ldc = in};
                    const Out dw = dx.out(1);
                    be(dy).matmul(ctx(dy, cost::matmul(s, dy.dtype())), s, dy.in(), all.in(), dw);
                  }
                  if (dx.wanted(0)) {
                    Tensor partial = empty(dy, dy.shape().with_last(in), "partial gradient");
                    const MatmulShape s{.M = rows, .N = in, .K = out, .lda = out, .ldb = in, .ldc = in};
                    be(dy).matmul(ctx(dy, cost::matmul(s, dy.dtype())), s, dy.in(), n.saved[1].in(),
                                  partial.set());
                    dx.pass(0, scattered(*ranks, partial));
                  }
                  if (!dx.wanted(2)) return;
                  const Out db = dx.out(2);
                  run(&Backend::bias_bwd, cost::bias_bwd, dy, dy.in(), db);
                });
}

// Sends the n-th part of x to rank n; returns the parts that all ranks send to this one, in rank order.
static Tensor all_to_all(Comm& comm, const Tensor& x) {
  const Tensor y = empty_like(x, "from all ranks");
  // BEGIN SOLUTION 21.4
  const std::vector<int64_t> counts(static_cast<size_t>(comm.size()), x.numel() / comm.size());
  comm.all_to_all(x, counts, y, counts)->wait();
  // STUB: todo("21.4", "each rank sends its n-th part to rank n", comm, x, y);
  // END SOLUTION 21.4
  return y;
}
static Tensor sent_to_experts(Comm& comm, const Tensor& x) {
  const int64_t N = comm.size(), here = x.shape()[0] / N;
  return swapped(all_to_all(comm, x), N, here).reshape({here, N * x.shape()[1], x.shape()[2], x.last()});
}
static Tensor sent_from_experts(Comm& comm, const Tensor& x) {
  const int64_t N = comm.size(), here = x.shape()[0];
  return all_to_all(comm, swapped(x, here, N)).reshape({N * here, x.shape()[1] / N, x.shape()[2], x.last()});
}

Tensor to_experts(Comm& comm, const Tensor& x) {
  const ProfileRange range("to_experts");
  check(x.shape().rank() == 4 && x.shape()[0] % comm.size() == 0, "to_experts: x is ", x.shape(), " on ",
        comm.size(), " ranks; it must be (E,B,R,C) with E a multiple of the ranks");
  return record("to_experts", {x}, {}, sent_to_experts(comm, x),
                [ranks = &comm](const Node&, const Tensor& dy, Grads& dx) {
                  dx.pass(0, sent_from_experts(*ranks, dy));
                });
}

Tensor from_experts(Comm& comm, const Tensor& x) {
  const ProfileRange range("from_experts");
  check(x.shape().rank() == 4 && x.shape()[1] % comm.size() == 0, "from_experts: x is ", x.shape(), " on ",
        comm.size(), " ranks; it must be (E/N,N B,R,C)");
  return record(
      "from_experts", {x}, {}, sent_from_experts(comm, x),
      [ranks = &comm](const Node&, const Tensor& dy, Grads& dx) { dx.pass(0, sent_to_experts(*ranks, dy)); });
}

// Converts ids in the whole vocabulary to row (or column) indices in this rank's part.
static Tensor in_part(Comm& comm, const Tensor& ids, int64_t vocab) {
  const Part part = part_of(vocab, comm.rank(), comm.size());
  Tensor local = empty_like(ids, "local ids");
  be(ids).local_ids(ctx(ids, cost::local_ids(ids.numel())), ids.numel(), vocab, part.begin, part.count,
                    ids.in(), local.set());
  return local;
}

static void check_part(const char* op, Comm& comm, int64_t vocab, int64_t here) {
  const int64_t count = part_of(vocab, comm.rank(), comm.size()).count;
  check(here == count, op, ": of a vocabulary of ", vocab, " rank ", comm.rank(), " of ", comm.size(),
        " has ", count, ", not ", here);
}

Tensor embedding_of_part(Comm& comm, const Tensor& table, int64_t vocab, const Tensor& ids) {
  check_part("embedding_of_part", comm, vocab, table.shape()[0]);
  return sum_from_ranks(comm, embedding(table, in_part(comm, ids, vocab)));
}

Tensor cross_entropy_of_part(Comm& comm, const Tensor& logits, int64_t vocab, const Tensor& targets,
                             const Tensor& given) {
  const ProfileRange range("cross_entropy_of_part");
  const RowShape s = logits.rows();
  const DType stats = statistics_dtype(logits.dtype());
  check(targets.dtype() == DType::I32 && targets.numel() == s.rows && s.rows > 0,
        "cross_entropy_of_part: logits are ", logits.shape(), ", targets are ", targets.shape(), " ",
        name_of(targets.dtype()), "; give one int32 target for each row of logits, and at least one row");
  check_part("cross_entropy_of_part", comm, vocab, logits.last());
  check(!given.defined() || (given.numel() == 1 && given.dtype() == stats),
        "cross_entropy_of_part: count is ", given.shape(), "; it must be one number in ", name_of(stats));
  Tensor count = given;
  if (!count.defined()) {
    count = empty(logits, {1}, stats, "targets that count");
    be(logits).count_targets(ctx(logits, cost::count_targets(s.rows)), s.rows, targets.in(), count.set());
  }
  const Tensor local = in_part(comm, targets, vocab);
  Tensor part_lse = empty(logits, {s.rows}, stats, "part's lse"),
         sums = empty(logits, {2, s.rows}, stats, "sums"), loss = empty(logits, {}, stats, "loss"),
         lse = empty(logits, targets.shape(), stats, "cross_entropy.lse");
  be(logits).cross_entropy_fwd(ctx(logits, cost::cross_entropy_fwd(s, logits.dtype())), s, logits.in(),
                               local.in(), count.in(), {nullptr, stats}, part_lse.set());
  Tensor max = empty_like(part_lse, "max");
  cast(part_lse, max.set());
  comm.all_reduce(max, Reduce::Max)->wait();
  be(logits).cross_entropy_sums(ctx(logits, cost::cross_entropy_sums(s, logits.dtype())), s, logits.in(),
                                local.in(), part_lse.in(), max.in(), sums.set());
  comm.all_reduce(sums)->wait();
  be(logits).cross_entropy_of_sums(ctx(logits, cost::cross_entropy_of_sums(s.rows, stats)), s.rows,
                                   targets.in(), count.in(), max.in(), sums.in(), loss.set(), lse.set());
  return record("cross_entropy_of_part", {logits},
                {{logits, needed_by(logits)},
                 {local, needed_by(logits)},
                 {lse, needed_by(logits)},
                 {count, needed_by(logits)}},
                loss, cross_entropy_op_bwd);
}

}  // namespace gradus
