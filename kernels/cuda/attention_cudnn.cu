#include "kernels/cuda/attention_cudnn.h"

#include <map>

#include "kernels/cuda/cudnn_graph.h"

namespace gradus::cuda {

namespace {

using Graph = CudnnGraph;
using Tensor = CudnnGraph::Tensor;

// The tensors whose addresses a call gives.
enum Id : int64_t { kQ = 1, kK, kV, kY, kLse, kDy, kDq, kDk, kDv, kRowsums, kScale, kOne, kMinusInfinity };

// The tensors of attention, by the shapes that occur.
struct Shapes {
  const AttentionShape& s;
  cudnnDataType_t t;
  Graph& g;
  Tensor heads(Id id, HeadLayout l) const {
    return g.memory(id, t, {s.B, s.H, s.T, s.D}, {l.batch, l.head, l.time, 1});
  }
  Tensor heads_transposed(Id id, HeadLayout l) const {
    return g.memory(id, t, {s.B, s.H, s.D, s.T}, {l.batch, l.head, 1, l.time});
  }
  Tensor rows(Id id) const {
    return g.memory(id, CUDNN_DATA_FLOAT, {s.B, s.H, s.T, 1}, {s.H * s.T, s.T, 1, 1});
  }
  Tensor some_rows() const { return g.between(CUDNN_DATA_FLOAT, {s.B, s.H, s.T, 1}); }
  Tensor scores(cudnnDataType_t type = CUDNN_DATA_FLOAT) const { return g.between(type, {s.B, s.H, s.T, s.T}); }
  Tensor scores_transposed() const {
    return g.between(t, {s.B, s.H, s.T, s.T}, {s.H * s.T * s.T, s.T * s.T, 1, s.T});
  }
};

// Query t sees key j where j <= t; elsewhere -inf.
Tensor masked(const Shapes& x, Tensor scores) {
  if (x.s.mask == Mask::None) return scores;
  const Tensor t = x.g.index(2, scores, x.scores(CUDNN_DATA_INT32));
  const Tensor j = x.g.index(3, scores, x.scores(CUDNN_DATA_INT32));
  const Tensor seen = x.g.pointwise(CUDNN_POINTWISE_CMP_GE, t, j, x.scores(CUDNN_DATA_BOOLEAN));
  return x.g.pointwise(CUDNN_POINTWISE_BINARY_SELECT, scores, x.g.number(kMinusInfinity), seen, x.scores());
}

// y = softmax(scale q k^T + mask) v, lse = max + log(sum(e^(score - max)))
void build_fwd(const Shapes& x, bool wants_lse) {
  Graph& g = x.g;
  const AttentionShape& s = x.s;
  const Tensor dots = g.matmul(x.heads(kQ, s.qkv), x.heads_transposed(kK, s.qkv), x.scores());
  const Tensor scores = masked(x, g.pointwise(CUDNN_POINTWISE_MUL, dots, g.number(kScale), x.scores()));
  const Tensor max = g.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, x.some_rows());
  const Tensor below = g.pointwise(CUDNN_POINTWISE_SUB, scores, max, x.scores());
  const Tensor weights = g.pointwise(CUDNN_POINTWISE_EXP, below, x.scores());
  const Tensor sum = g.reduce(CUDNN_REDUCE_TENSOR_ADD, weights, x.some_rows());
  if (wants_lse) {
    const Tensor log = g.pointwise(CUDNN_POINTWISE_LOG, sum, x.some_rows());
    g.pointwise(CUDNN_POINTWISE_ADD, max, log, x.rows(kLse));
  }
  const Tensor probs = g.pointwise(CUDNN_POINTWISE_DIV, weights, sum, x.scores(x.t));
  g.matmul(probs, x.heads(kV, s.qkv), x.heads(kY, s.y));
}

// P = e^(score - lse), dS = scale P (dy v^T - rowsum(dy y)), dv = P^T dy, dk = dS^T q, dq = dS k. That dq is
// the product itself, not a sum in memory that blocks add to in any order, is what makes it deterministic.
void build_bwd(const Shapes& x) {
  Graph& g = x.g;
  const AttentionShape& s = x.s;
  const Tensor q = x.heads(kQ, s.qkv), k_transposed = x.heads_transposed(kK, s.qkv);
  const Tensor dy = x.heads(kDy, s.y), scale = g.number(kScale);

  const Tensor dy_y = g.pointwise(CUDNN_POINTWISE_MUL, dy, x.heads(kY, s.y),
                                  g.between(CUDNN_DATA_FLOAT, {s.B, s.H, s.T, s.D}));
  const Tensor sums = g.reduce(CUDNN_REDUCE_TENSOR_ADD, dy_y, x.some_rows());
  const Tensor rowsums = g.pointwise(CUDNN_POINTWISE_MUL, sums, g.number(kOne), x.rows(kRowsums));

  const Tensor dots = g.matmul(q, k_transposed, x.scores());
  const Tensor scores = g.pointwise(CUDNN_POINTWISE_MUL, dots, scale, x.scores());
  const Tensor logs = g.pointwise(CUDNN_POINTWISE_SUB, scores, x.rows(kLse), x.scores());
  const Tensor P = g.pointwise(CUDNN_POINTWISE_EXP, masked(x, logs), x.scores());
  g.matmul(g.reshape(P, x.scores_transposed()), dy, x.heads(kDv, s.qkv));

  const Tensor dP = g.matmul(dy, x.heads_transposed(kV, s.qkv), x.scores());
  const Tensor centred = g.pointwise(CUDNN_POINTWISE_SUB, dP, rowsums, x.scores());
  const Tensor product = g.pointwise(CUDNN_POINTWISE_MUL, centred, P, x.scores());
  const Tensor dS = g.pointwise(CUDNN_POINTWISE_MUL, product, scale, x.scores(x.t));
  g.matmul(g.reshape(dS, x.scores_transposed()), q, x.heads(kDk, s.qkv));

  const HeadLayout& l = s.qkv;
  const Tensor k = g.between(x.t, {s.B, s.H, s.T, s.D}, {l.batch, l.head, l.time, 1});
  g.matmul(dS, g.reshape(k_transposed, k), x.heads(kDq, s.qkv));
}

}  // namespace
}  // namespace gradus::cuda
