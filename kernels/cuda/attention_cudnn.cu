// Attention by cuDNN. There is no single operation for it in cuDNN 9.19 that knows a causal mask, so
// attention is written down as the graph of its products, exponentials and sums; cuDNN recognizes the graph
// and has fused kernels for the whole of it, which are FlashAttention on tensor cores.
//
// NEVER EXECUTED by cuDNN: written without a GPU at hand. tests/standin interprets these graphs, and
// cuDNN 9.19 itself was asked as far as that goes: from the device properties of A100, H100, B200 and a
// GeForce RTX 4090 it makes plans of them.
#include "kernels/cuda/attention_cudnn.h"

#include <initializer_list>
#include <limits>
#include <map>

#include "kernels/cuda/attention_calls.h"
#include "kernels/cuda/cudnn_graph.h"
#include "kernels/cuda/library.h"

namespace gradus::GRADUS_GPU {

namespace {

using Graph = CudnnGraph;
using Tensor = CudnnGraph::Tensor;

// The tensors whose addresses a call gives.
enum Id : int64_t { kQ = 1, kK, kV, kY, kLse, kDy, kDq, kDk, kDv, kRowsums, kScale, kOne, kLowest };

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
  Tensor scores(cudnnDataType_t type = CUDNN_DATA_FLOAT) const {
    return g.between(type, {s.B, s.H, s.T, s.T});
  }
  Tensor scores_transposed() const {
    return g.between(t, {s.B, s.H, s.T, s.T}, {s.H * s.T * s.T, s.T * s.T, 1, s.T});
  }
};

// Query t sees key j where j <= t; elsewhere the lowest number of fp32, as in NVIDIA's own graphs (-inf minus
// -inf would be no number).
Tensor masked(const Shapes& x, Tensor scores) {
  if (x.s.mask == Mask::None) return scores;
  const Tensor t = x.g.index(2, scores, x.scores(CUDNN_DATA_INT32));
  const Tensor j = x.g.index(3, scores, x.scores(CUDNN_DATA_INT32));
  const Tensor seen = x.g.compare(CUDNN_POINTWISE_CMP_GE, t, j, x.scores(CUDNN_DATA_BOOLEAN));
  return x.g.pointwise(CUDNN_POINTWISE_BINARY_SELECT, scores, x.g.number(kLowest), seen, x.scores());
}

// y = softmax(scale q k^T + mask) v, lse = max + log(sum(e^(score - max)))
void build_fwd(const Shapes& x) {
  Graph& g = x.g;
  const AttentionShape& s = x.s;
  const Tensor dots = g.matmul(x.heads(kQ, s.qkv), x.heads_transposed(kK, s.qkv), x.scores());
  const Tensor scores = masked(x, g.pointwise(CUDNN_POINTWISE_MUL, dots, g.number(kScale), x.scores()));
  const Tensor max = g.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, x.some_rows());
  const Tensor below = g.pointwise(CUDNN_POINTWISE_SUB, scores, max, x.scores());
  const Tensor weights = g.pointwise(CUDNN_POINTWISE_EXP, below, x.scores());
  const Tensor sum = g.reduce(CUDNN_REDUCE_TENSOR_ADD, weights, x.some_rows());
  const Tensor log = g.pointwise(CUDNN_POINTWISE_LOG, sum, x.some_rows());
  g.pointwise(CUDNN_POINTWISE_ADD, max, log, x.rows(kLse));
  const Tensor probs = g.pointwise(CUDNN_POINTWISE_DIV, weights, sum, x.scores(x.t));
  g.matmul(probs, x.heads(kV, s.qkv), x.heads(kY, s.y));
}

// P = e^(score - lse), dS = scale P (dy v^T - rowsum(dy y)), dv = P^T dy, dk = dS^T q, dq = dS k. cuDNN has
// no attribute that asks for determinism; the form of the graph decides. Were dq cast from an fp32 sum in
// memory, blocks would add to that sum atomically, in any order (and cuDNN would not note it as
// nondeterministic). With dq a product like the others, dS goes through the workspace instead.
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
  const Tensor dS = g.pointwise(CUDNN_POINTWISE_MUL, product, scale, x.scores());
  g.matmul(g.reshape(dS, x.scores_transposed()), q, x.heads(kDk, s.qkv));

  const HeadLayout& l = s.qkv;
  const Tensor k = g.between(x.t, {s.B, s.H, s.T, s.D}, {l.batch, l.head, l.time, 1});
  g.matmul(dS, g.reshape(k_transposed, k), x.heads(kDq, s.qkv));
}

// What a plan depends on. The scale is an argument of each execution.
using Key = std::array<int64_t, 13>;
Key key_of(bool backward, const AttentionShape& s, DType t) {
  return {backward,    int64_t(t), int64_t(s.mask), s.B,       s.H,      s.T,     s.D,
          s.qkv.batch, s.qkv.head, s.qkv.time,      s.y.batch, s.y.head, s.y.time};
}

// The plans made up to now (to make one takes a good part of a second), none where cuDNN has none; and the
// handle that executions need.
struct Library {
  cudnnHandle_t handle = nullptr;
  std::map<Key, std::optional<Descriptor>> plans;
};

std::optional<Descriptor> make_plan(bool backward, const AttentionShape& s, DType t,
                                    const Descriptor& device) {
  Graph graph;
  const Shapes shapes{s, t == DType::BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF, graph};
  if (backward)
    build_bwd(shapes);
  else
    build_fwd(shapes);
  return graph.plan(device, kWorkspaceBytes);
}

const std::optional<Descriptor>& find_plan(bool backward, const AttentionShape& s, DType t) {
  auto& plans = of_gpu_and_thread<Library>().plans;
  const Key key = key_of(backward, s, t);
  auto found = plans.find(key);
  if (found == plans.end()) {
    Descriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    device.set(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, int32_t(current_gpu()));
    device.finalize("read the properties of the GPU");
    found = plans.emplace(key, make_plan(backward, s, t, device)).first;
  }
  return found->second;
}

struct Bound {
  int64_t id;
  const void* address;
};
void execute(const Ctx& ctx, const Descriptor& plan, const AttentionShape& s,
             std::initializer_list<Bound> bound) {
  constexpr float kMasked = std::numeric_limits<float>::lowest();
  std::vector<int64_t> ids{kScale};
  std::vector<const void*> addresses{&s.scale};
  if (s.mask == Mask::Causal) ids.push_back(kLowest), addresses.push_back(&kMasked);
  for (const Bound& b : bound) ids.push_back(b.id), addresses.push_back(b.address);
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids.data(), int64_t(ids.size()))
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, addresses.data(), int64_t(ids.size()))
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, ctx.workspace);
  pack.finalize("gather the arguments of attention");
  cudnnHandle_t& handle = of_gpu_and_thread<Library>().handle;
  if (!handle) cudnn_check(cudnnCreate(&handle), "start");
  cudnn_check(cudnnSetStream(handle, static_cast<cudaStream_t>(ctx.stream)), "take a stream");
  cudnn_check(cudnnBackendExecute(handle, plan.get(), pack.get()), "execute attention");
}

// Whether this cuDNN may be used; and where the contract allows more than it does.
bool possible(const AttentionShape& s, DType t, std::initializer_list<CBuf> inputs,
              std::initializer_list<Out> outputs) {
  attention_calls.cudnn_version = int64_t(cudnnGetVersion());
  bool ok = attention_calls.cudnn_version >= kOldestCudnn;
  ok = ok && (t == DType::BF16 || t == DType::F16) && s.dropout == 0 && s.B * s.H * s.T > 0;
  const auto aligned = [](const void* p) { return p && reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  for (const int64_t n : {s.D, s.qkv.batch, s.qkv.head, s.qkv.time, s.y.batch, s.y.head, s.y.time})
    ok = ok && n % 8 == 0;
  for (const CBuf& x : inputs) ok = ok && aligned(x.p);
  for (const Out& x : outputs) ok = ok && aligned(x.p) && x.w == Write::Set;
  return ok && s.D <= 128;
}

}  // namespace

bool attention_cudnn_fwd(const Ctx& ctx, const AttentionShape& s, CBuf q, CBuf k, CBuf v, Out y, Out lse) {
  if (!possible(s, q.t, {q, k, v}, {y, lse})) return false;
  const std::optional<Descriptor>& plan = find_plan(false, s, q.t);
  if (plan) execute(ctx, *plan, s, {{kQ, q.p}, {kK, k.p}, {kV, v.p}, {kY, y.p}, {kLse, lse.p}});
  return plan.has_value();
}

// To be deterministic, cuDNN's backward keeps a T x T matrix of each head in the workspace. Where those of
// all heads do not fit, the call becomes several executions, each for as many heads of one sample as do.
bool attention_cudnn_bwd(const Ctx& ctx, const AttentionShape& s, CBuf q, CBuf k, CBuf v, CBuf y, CBuf lse,
                         CBuf dy, Out dq, Out dk, Out dv) {
  if (!possible(s, q.t, {q, k, v, y, lse, dy}, {dq, dk, dv})) return false;
  AttentionShape piece = s;
  const std::optional<Descriptor>* plan = &find_plan(true, piece, q.t);
  const bool may_cut = s.T % 4 == 0;  // else the lse of some heads is not aligned to 16 bytes
  for (int64_t heads = s.H; may_cut && !*plan && heads > 0; --heads) {
    if (s.H % heads != 0) continue;
    piece.B = 1, piece.H = heads;
    plan = &find_plan(true, piece, q.t);
  }
  if (!*plan) return false;
  constexpr float kUnit = 1;
  for (int64_t b = 0; b < s.B; b += piece.B)
    for (int64_t h = 0; h < s.H; h += piece.H) {
      const int64_t in = (b * s.qkv.batch + h * s.qkv.head) * size_of(q.t);
      const int64_t out = (b * s.y.batch + h * s.y.head) * size_of(q.t);
      const int64_t rows = (b * s.H + h) * s.T * size_of(DType::F32);
      const auto at = [](const void* p, int64_t bytes) { return static_cast<const char*>(p) + bytes; };
      execute(ctx, **plan, s,
              {{kQ, at(q.p, in)},
               {kK, at(k.p, in)},
               {kV, at(v.p, in)},
               {kY, at(y.p, out)},
               {kLse, at(lse.p, rows)},
               {kDy, at(dy.p, out)},
               {kDq, at(dq.p, in)},
               {kDk, at(dk.p, in)},
               {kDv, at(dv.p, in)},
               {kRowsums, at(ctx.scratch, rows)},
               {kOne, &kUnit}});
    }
  return true;
}

}  // namespace gradus::GRADUS_GPU
