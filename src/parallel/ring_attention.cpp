#include "src/parallel/ring_attention.h"

#include <cmath>

namespace gradus {

Zigzag zigzag(int64_t T, int64_t rank, int64_t ranks) {
  check(T % (2 * ranks) == 0, "context parallel: ", T, " tokens cannot be cut into ", 2 * ranks,
        " chunks, two for each rank; use a multiple of ", 2 * ranks);
  const int64_t count = T / (2 * ranks);
  return {{rank * count, (2 * ranks - 1 - rank) * count}, count};
}

std::vector<ChunkPair> chunk_pairs(Mask mask, int64_t of_queries, int64_t of_keys, int64_t ranks) {
  const auto chunk = [&](int64_t rank, int64_t i) { return i == 0 ? rank : 2 * ranks - 1 - rank; };
  std::vector<ChunkPair> pairs;
  for (const int64_t q : {0, 1})
    for (const int64_t k : {0, 1}) {
      const int64_t later = chunk(of_queries, q) - chunk(of_keys, k);
      // BEGIN SOLUTION 19.4
      if (mask == Mask::None || later >= 0)
        pairs.push_back({q, k, mask == Mask::Causal && later == 0 ? Mask::Causal : Mask::None});
      // STUB: todo("19.4", "add this pair of chunks with its mask if its queries attend to its keys", mask, later);
      // END SOLUTION 19.4
    }
  return pairs;
}

int64_t count_pairs(const std::vector<ChunkPair>& pairs, int64_t count) {
  int64_t all = 0;
  for (const ChunkPair& p : pairs) all += p.mask == Mask::Causal ? count * (count + 1) / 2 : count * count;
  return all;
}

// One chunk of queries and one of keys, in tensors of T tokens. y: the layout of y (and its gradient).
static AttentionShape chunk_shape(const Tensor& q, int64_t heads, Mask mask, const HeadLayout& y) {
  const int64_t T = q.shape()[1], C = q.last(), D = C / heads;
  return {.B = q.shape()[0],
          .H = heads,
          .KV = heads,
          .T = T / 2,
          .D = D,
          .qkv = {T * C, D, C},
          .y = y,
          .scale = 1 / std::sqrt(float(D)),
          .mask = mask};
}
static HeadLayout in_whole(const Tensor& q, int64_t heads) {
  return {q.shape()[1] * q.last(), q.last() / heads, q.last()};
}

static void copy_columns(const Tensor& from, int64_t x_row, int64_t begin, int64_t cols, Out to,
                         int64_t y_row) {
  const RowShape s{from.numel() / x_row, cols};
  be(from).cast_columns(ctx(from, cost::cast_columns(s, from.dtype(), to.t)), s, x_row, from.in().from(begin),
                        y_row, to);
}
static Tensor filled(const Tensor& like, const Shape& shape, DType t, double value, std::string_view name) {
  Tensor y = empty(like, shape, t, name);
  be(y).fill(ctx(y, cost::fill(y.numel(), t)), y.numel(), y.set(), value);
  return y;
}
Tensor zeros_like(const Tensor& x, std::string_view name) { return filled(x, x.shape(), x.dtype(), 0, name); }

Tensor keys_of(const Tensor& qkv) {
  const int64_t C = qkv.last() / 3, n = qkv.numel() / 3;
  Tensor keys = empty(qkv, {2, qkv.shape()[0], qkv.shape()[1], C}, "keys and values");
  const Out to = keys.set();
  copy_columns(qkv, 3 * C, C, C, to, C);
  copy_columns(qkv, 3 * C, 2 * C, C, to.from(n), C);
  return keys;
}

Attended::Attended(const Tensor& qkv, int64_t heads) : heads(heads) {
  check(qkv.shape().rank() == 3 && heads > 0 && qkv.last() % (3 * heads) == 0 && qkv.shape()[1] % 2 == 0,
        "ring attention: qkv is ", qkv.shape(), " with ", heads,
        " heads; it must be (B,T,3C) with an even T and C a multiple of the heads");
  const int64_t B = qkv.shape()[0], T = qkv.shape()[1], C = qkv.last() / 3;
  const DType stats = statistics_dtype(qkv.dtype());
  q = empty(qkv, {B, T, C}, "queries");
  copy_columns(qkv, 3 * C, 0, C, q.set(), C);
  sum = filled(qkv, {B, T, C}, stats, 0, "attention so far");
  lse = filled(qkv, {2, B, heads, T / 2}, stats, -INFINITY, "attention.lse");
}

void Attended::meet(const Tensor& keys, const std::vector<ChunkPair>& pairs) {
  const int64_t B = q.shape()[0], half = q.shape()[1] / 2, C = q.last();
  for (const ChunkPair& p : pairs) {
    AttentionShape s = chunk_shape(q, heads, p.mask, {half * C, C / heads, C});
    Tensor y = empty(q, {B, half, C}, "attention of a pair"),
           y_lse = empty(q, {B, heads, half}, lse.dtype(), "lse");
    const CBuf k = keys.in().from(p.keys * half * C);
    be(q).attention_flash_fwd(ctx(q, cost::attention_flash_fwd(s, q.dtype())), s,
                              q.in().from(p.queries * half * C), k, k.from(q.numel()), y.set(), y_lse.set());
    s.y = in_whole(q, heads);
    be(q).attention_merge_inplace(ctx(q, cost::attention_merge_inplace(s, q.dtype())), s, y.in(), y_lse.in(),
                                  sum.set().from(p.queries * half * C),
                                  lse.set().from(p.queries * y_lse.numel()));
  }
}

Tensor Attended::y() const {
  Tensor y = empty_like(q, "attention");
  cast(sum, y.set());
  return y;
}

void AttendedGradient::meet(const Tensor& keys, const std::vector<ChunkPair>& pairs, Tensor& dkeys) {
  const int64_t half = q.shape()[1] / 2, C = q.last();
  for (const ChunkPair& p : pairs) {
    const AttentionShape s = chunk_shape(q, heads, p.mask, in_whole(q, heads));
    const int64_t at = p.queries * half * C, lse_at = p.queries * lse.numel() / 2;
    const CBuf k = keys.in().from(p.keys * half * C);
    const Out dk = dkeys.add().from(p.keys * half * C);
    be(q).attention_flash_bwd(ctx(q, cost::attention_flash_bwd(s, q.dtype())), s, q.in().from(at), k,
                              k.from(q.numel()), y.in().from(at), lse.in().from(lse_at), dy.in().from(at),
                              dq.add().from(at), dk, dk.from(q.numel()));
  }
}

void put_gradients(const Tensor& dq, const Tensor& dkeys, Out dqkv) {
  const int64_t C = dq.last();
  copy_columns(dq, C, 0, C, dqkv, 3 * C);
  copy_columns(dkeys.narrow(0, 1), C, 0, C, dqkv.from(C), 3 * C);
  copy_columns(dkeys.narrow(1, 1), C, 0, C, dqkv.from(2 * C), 3 * C);
}

// The ring: the rank whose keys this rank has at a step, and how it passes them on.
struct Ring {
  Comm& comm;
  int64_t whose(int64_t step) const { return (comm.rank() + comm.size() - step) % comm.size(); }
  int64_t next() const { return (comm.rank() + 1) % comm.size(); }
  int64_t previous() const { return (comm.rank() + comm.size() - 1) % comm.size(); }
  // Passes x on while f runs. All ranks may survive an error of f, so the message is received even then.
  template <class F>
  void pass_during(const Tensor& x, const Tensor& to, F f) const {
    const auto work = pass(x, to, 0);
    try {
      f();
    } catch (const std::exception&) {
      work->wait();
      throw;
    }
    work->wait();
  }
  std::unique_ptr<Work> pass(const Tensor& x, const Tensor& to, int64_t tag) const {
    return comm.exchange({{x, next(), tag}}, {{to, previous(), tag}});
  }
};

static void ring_attention_bwd(Comm& comm, int64_t heads, Mask mask, const Node& n, const Tensor& dy,
                               Grads& dx) {
  const Ring ring{comm};
  const Tensor &qkv = n.saved[0].tensor, &y = n.saved[1].tensor, &lse = n.saved[2].tensor;
  const int64_t C = y.last(), N = comm.size();
  Tensor q = empty_like(y, "queries"), dq = zeros_like(y, "gradient of queries");
  copy_columns(qkv, 3 * C, 0, C, q.set(), C);
  AttendedGradient gradient{q, y, lse, dy, heads, dq};
  Tensor keys = keys_of(qkv), dkeys = zeros_like(keys, "gradient of keys and values");
  for (int64_t step = 0; step < N; ++step) {
    const auto meet = [&] {
      gradient.meet(keys, chunk_pairs(mask, comm.rank(), ring.whose(step), N), dkeys);
    };
    const Tensor coming = empty_like(keys, "keys and values"),
                 dcoming = empty_like(dkeys, "gradient of keys and values");
    if (step == N - 1)
      meet();
    else
      ring.pass_during(keys, coming, meet);
    keys = coming;
    if (N == 1) break;
    ring.pass(dkeys, dcoming, 1)->wait();
    dkeys = dcoming;
  }
  put_gradients(dq, dkeys, dx.out(0));
}

Tensor ring_attention(Comm& comm, const Tensor& qkv, int64_t heads, Mask mask) {
  const ProfileRange range("ring_attention");
  const Ring ring{comm};
  Attended attended(qkv, heads);
  Tensor keys = keys_of(qkv);
  for (int64_t step = 0; step < comm.size(); ++step) {
    const auto meet = [&] {
      attended.meet(keys, chunk_pairs(mask, comm.rank(), ring.whose(step), comm.size()));
    };
    if (step == comm.size() - 1) {
      meet();
      break;
    }
    const Tensor coming = empty_like(keys, "keys and values");
    ring.pass_during(keys, coming, meet);
    keys = coming;
  }
  const Tensor y = attended.y();
  return record("ring_attention", {qkv},
                {{qkv, needed_by(qkv)}, {y, needed_by(qkv)}, {attended.lse, needed_by(qkv)}}, y,
                [ranks = &comm, heads, mask](const Node& n, const Tensor& dy, Grads& dx) {
                  ring_attention_bwd(*ranks, heads, mask, n, dy, dx);
                });
}

}  // namespace gradus
