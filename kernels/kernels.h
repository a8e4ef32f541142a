// THE kernel contract: one table of function pointers that a backend fills. This layer knows nothing of the
// engine: pointers, sizes and dtypes go in, and nothing here owns memory.
//
// - Argument order: sizes, inputs, outputs, options. Tensors are dense and row-major, but for given strides.
// - Kernels never allocate. Scratch comes in Ctx; its size is in cost.h, a function of the shapes alone.
// - Write::Set: out <- round(r). Write::Add: out <- round(out + r), where r is the *finished* fp32 result
//   that Set would have rounded. Tests compare the two to the bit, but for cuBLAS (kernels/cuda/matmul.cu).
// - Each output has its own Write; an output whose p is nullptr is not wanted and is skipped.
// - Any alignment, any size (0, 1, 7, 255, 257, ...), int64_t sizes. Outputs do not overlap inputs unless
//   the name ends in _inplace.
// - One dtype T in {fp32, bf16, fp16} (on cpu also fp64, for tests) for all activations and their gradients;
//   the gradients of parameters are T or fp32; statistics, log-sum-exps and losses are fp32 (fp64 when T is
//   fp64). Anything else is refused by a sentence. Sums are taken in fp32 (fp64 for fp64).
// - Deterministic: reductions use a fixed number of partitions, so no result depends on the number of
//   threads.
// - By-value arguments do not change from step to step; what does lives in StepScalars, in device memory.
#pragma once
#include <cstdint>

#include "kernels/dtype.h"

namespace gradus {

struct CBuf {  // an input
  const void* p = nullptr;
  DType t = DType::F32;
  template <class T>
  const T* as() const {
    return static_cast<const T*>(p);
  }
};

enum class Write : uint8_t { Set, Add };

struct Out {  // an output
  void* p = nullptr;
  DType t = DType::F32;
  Write w = Write::Set;
  bool wanted() const { return p != nullptr; }
  template <class T>
  T* as() const {
    return static_cast<T*>(p);
  }
};

struct StepScalars {  // what changes from step to step, resident on the device
  float learning_rate = 0;
  float grad_norm = 0;    // written by grad_norm: the global L2 norm of all gradients
  float clip_factor = 1;  // written by grad_norm, read by the optimizers: gradients are multiplied by it
  int64_t step = 1;       // of the attempts at an update, this one; dropout draws from it. The host counts
  int64_t updates = 0;    // that were made, with the one at hand; Adam's bias correction
};

struct Ctx {
  StepScalars* scalars = nullptr;
  void* scratch = nullptr;  // this call's temporary memory, at least Cost::scratch bytes, 64-byte aligned
  void* workspace =
      nullptr;             // the device's fixed workspace (kWorkspaceBytes, kind `vendor`): tiles, libraries
  void* stream = nullptr;  // cuda: the cudaStream_t that everything is queued on
};
constexpr int64_t kWorkspaceBytes = int64_t(16) << 20;

struct RowShape {
  int64_t rows, cols;
};

enum class Trans : uint8_t { No, Yes };
struct Batch {
  int64_t count = 1, stride_a = 0, stride_b = 0, stride_c = 0;
};  // strides in elements
// C[M,N] = alpha * op(A)[M,K] op(B)[K,N]; ld* are the strides, in elements, between rows as stored.
// Two nested batch dimensions (say batch and head), each with its own strides.
struct MatmulShape {
  int64_t M, N, K;
  Trans ta = Trans::No, tb = Trans::No;
  int64_t lda, ldb, ldc;
  Batch batch[2] = {};
  float alpha = 1;
};

// Where element (b, h, t, d) of a head tensor lies: b*batch + h*head + t*time + d, in elements.
struct HeadLayout {
  int64_t batch, head, time;
};
enum class Mask : uint8_t { None, Causal };
// The random bits of a dropout call: Philox(seed, step, ordinal, global sample, element within the sample).
struct RandomKey {
  uint64_t seed = 0;
  uint32_t ordinal = 0;      // of the call in the forward pass
  int64_t first_sample = 0;  // of the call's samples, the first one's index in the whole batch
};
struct AttentionShape {
  int64_t B, H, T, D;
  HeadLayout qkv, y;  // the layout of q, k, v (and their gradients), and of the output (and its gradient)
  float scale;        // usually 1/sqrt(D)
  Mask mask = Mask::Causal;
  float dropout = 0;  // probability of dropping an attention weight
  RandomKey key = {};
};

// Packed q, k, v (B, T, 3 H D), of which rotary turns the first `dims` of the D of each head of q and k.
struct RotaryShape {
  int64_t B, T, H, D, dims;  // dims: even, 0 to D
  int64_t first = 0;  // the position of the first of the T tokens; more than 0 when others were read before
  bool inverse = false;  // turn back: the backward of turning
};
constexpr double kRotaryBase = 10000;

// One optimizer update over a list of parameters, one launch. With a master copy the arithmetic is done on
// `master` (fp32) and `value` receives its rounding; without one, on `value`. Gradients are multiplied by
// scalars->clip_factor.
struct ParamUpdate {
  int64_t n;
  Out value;  // updated in place
  CBuf grad;
  Out m, v;    // AdamW: first and second moment. SGD: m is the momentum buffer, or nullptr. Updated in place
  Out master;  // fp32, or nullptr
  bool decay;  // whether weight decay applies to this parameter
};
struct ParamList {
  int64_t count;
  const ParamUpdate* items;
};
struct BufList {
  int64_t count;
  const CBuf* items;
  const int64_t* sizes;
};
struct AdamWArgs {
  float beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f, weight_decay = 0;
};
struct SgdArgs {
  float momentum = 0, weight_decay = 0;
};

struct Backend {
  const char* name;

  // Element-wise over n elements.
  void (*fill)(const Ctx&, int64_t n, Out y, double value);
  void (*cast)(const Ctx&, int64_t n, CBuf x, Out y);         // y = x, in y's dtype (any two of F64..F16)
  void (*add)(const Ctx&, int64_t n, CBuf a, CBuf b, Out y);  // y = a + b
  void (*scale)(const Ctx&, int64_t n, CBuf x, Out y, float alpha);  // y = alpha x
  // gelu: y = x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3)       (Hendrycks & Gimpel 2016, tanh form)
  void (*gelu_fwd)(const Ctx&, int64_t n, CBuf x, Out y);
  void (*gelu_bwd)(const Ctx&, int64_t n, CBuf x, CBuf dy, Out dx);
  // gelu_erf: y = x Phi(x) = x/2 (1 + erf(x/sqrt(2)))                     (the same paper, the exact form)
  void (*gelu_erf_fwd)(const Ctx&, int64_t n, CBuf x, Out y);
  void (*gelu_erf_bwd)(const Ctx&, int64_t n, CBuf x, CBuf dy, Out dx);
  void (*tanh_fwd)(const Ctx&, int64_t n, CBuf x, Out y);
  void (*tanh_bwd)(const Ctx&, int64_t n, CBuf y, CBuf dy, Out dx);  // dx = dy (1 - y^2)
  // dropout: y = x / (1-p) where kept, else 0; x is (samples, per_sample). Its backward is the same call on
  // dy.
  void (*dropout)(const Ctx&, RowShape samples, CBuf x, Out y, float p, RandomKey key);

  // Rows.
  // bias: y[r,c] = x[r,c] + b[c]; a null x counts as zero (y[r,c] = b[c]). Backward: db[c] = sum_r dy[r,c].
  void (*bias_fwd)(const Ctx&, RowShape, CBuf x, CBuf b, Out y);
  void (*bias_bwd)(const Ctx&, RowShape, CBuf dy, Out db);
  // layernorm: y = (x - mean) rstd gamma + beta, rstd = 1/sqrt(var + eps), var biased (Ba et al. 2016, eq.
  // 4). stats (rows, 2) holds mean and rstd.
  void (*layernorm_fwd)(const Ctx&, RowShape, CBuf x, CBuf gamma, CBuf beta, Out y, Out stats, float eps);
  void (*layernorm_bwd)(const Ctx&, RowShape, CBuf x, CBuf gamma, CBuf stats, CBuf dy, Out dx, Out dgamma,
                        Out dbeta);
  void (*softmax_fwd)(const Ctx&, RowShape, CBuf x, Out y);            // y = exp(x - max) / sum
  void (*softmax_bwd)(const Ctx&, RowShape, CBuf y, CBuf dy, Out dx);  // dx = y (dy - sum(y dy))
  // cross-entropy, mean over rows: loss[1] = 1/rows sum_r (lse[r] - logits[r, target[r]]); lse (rows) is
  // saved. backward, in place: logits <- dloss[0]/rows (softmax(logits) - onehot(target)).  targets are
  // int32.
  void (*cross_entropy_fwd)(const Ctx&, RowShape, CBuf logits, CBuf targets, Out loss, Out lse);
  void (*cross_entropy_bwd_inplace)(const Ctx&, RowShape, CBuf targets, CBuf lse, CBuf dloss, Out logits);

  // embedding: y[r,:] = table[ids[r],:], table (vocab, cols), ids int32 in [0, vocab) (an id outside is
  // refused). backward: dtable[id,:] (+)= sum of dy[r,:] over r with ids[r] == id, in the order of r. Set
  // also zeroes the rest.
  void (*embedding_fwd)(const Ctx&, RowShape, int64_t vocab, CBuf table, CBuf ids, Out y);
  void (*embedding_bwd)(const Ctx&, RowShape, int64_t vocab, CBuf ids, CBuf dy, Out dtable);

  // Contractions.
  void (*matmul)(const Ctx&, const MatmulShape&, CBuf a, CBuf b, Out c);
  // attention_plain: probs = dropout-free softmax(scale q k^T + mask), (B,H,T,T), saved; y = dropout(probs)
  // v. With Mask::Causal the entries of probs above the diagonal are zero.
  void (*attention_plain_fwd)(const Ctx&, const AttentionShape&, CBuf q, CBuf k, CBuf v, Out probs, Out y);
  void (*attention_plain_bwd)(const Ctx&, const AttentionShape&, CBuf q, CBuf k, CBuf v, CBuf probs, CBuf dy,
                              Out dq, Out dk, Out dv);
  // attention_flash: the same y, without anything of size T x T (Dao et al. 2022, "FlashAttention", alg. 1;
  // Dao 2023, "FlashAttention-2", alg. 1 and 2). lse (B,H,T), saved: the log of the sum of e^score over a
  // query's keys, from which backward computes the probabilities anew. The dropped weights are those of
  // attention_plain.
  void (*attention_flash_fwd)(const Ctx&, const AttentionShape&, CBuf q, CBuf k, CBuf v, Out y, Out lse);
  void (*attention_flash_bwd)(const Ctx&, const AttentionShape&, CBuf q, CBuf k, CBuf v, CBuf y, CBuf lse,
                              CBuf dy, Out dq, Out dk, Out dv);

  // rotary (Su et al. 2021, eq. 34; the pairs are GPT-NeoX's): with h = dims/2 and the angle a =
  // (first + t) base^(-2i/dims) for i < h: y[i] = x[i] cos a - x[i+h] sin a, y[i+h] = x[i+h] cos a + x[i]
  // sin a; where nothing turns, y = x. Its backward is the inverse on dy.
  void (*rotary)(const Ctx&, const RotaryShape&, CBuf x, Out y);

  // Optimizers (they read learning_rate, updates and clip_factor from Ctx::scalars).
  // grad_norm: scalars->grad_norm = sqrt(sum of squares over the list), scalars->clip_factor =
  // min(1, max_norm / (grad_norm + 1e-6)); max_norm <= 0: clip_factor = 1.
  void (*grad_norm)(const Ctx&, BufList grads, float max_norm);
  // sgd: g' = clip g + wd w; m = momentum m + g' (if m); w -= lr (m or g').
  void (*sgd)(const Ctx&, ParamList, SgdArgs);
  // adamw (Loshchilov & Hutter 2019, alg. 2): g' = clip g; w -= lr wd w; m = b1 m + (1-b1) g';
  // v = b2 v + (1-b2) g'^2; w -= lr (m / (1-b1^n)) / (sqrt(v / (1-b2^n)) + eps), n = updates, from 1 on.
  void (*adamw)(const Ctx&, ParamList, AdamWArgs);
};
constexpr int kKernels =
#define GRADUS_KERNEL(entry) 1 +
#include "kernels/entries.inc"
    0;
static_assert(sizeof(Backend) == sizeof(const char*) + kKernels * sizeof(void (*)()),
              "entries.inc does not list every entry of the table");

const Backend& cpu_backend();
const Backend& cuda_backend();  // only in builds with CUDA=1
const Backend& emu_backend();   // the sources of kernels/cuda, run on the CPU
const Backend& meta_backend();  // computes nothing

}  // namespace gradus
