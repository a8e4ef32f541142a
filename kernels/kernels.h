// The kernel contract: one table of function pointers (entries.inc) that a backend fills. This layer knows
// nothing about the engine: kernels take pointers, sizes and dtypes, and they own no memory.
//
// - Argument order: sizes, inputs, outputs, options. Tensors are dense, row-major if no strides are given.
// - Kernels never allocate. Ctx has scratch memory for them; cost.h computes its size from the shapes alone.
// - Write::Set: out <- round(r). Write::Add: out <- round(out + r), where r is the *finished* fp32 result
//   that Set would have rounded. Tests check this bitwise, except for cuBLAS (kernels/cuda/matmul.cu).
// - Each output has its own Write; an output whose p is nullptr is not wanted, and the kernel skips it.
// - Any alignment, any size (0, 1, 7, 255, 257, ...), int64_t sizes. Outputs do not overlap inputs unless
//   the name ends in _inplace.
// - One dtype T in {fp32, bf16, fp16} (on cpu also fp64, for tests) for all activations and their gradients;
//   the gradients of parameters are T or fp32; statistics, log-sum-exps and losses are fp32 (fp64 when T is
//   fp64). Any other dtype is an Error. Sums are computed in fp32 (fp64 for fp64).
// - Deterministic: reductions use a fixed number of partitions, so no result depends on the number of
//   threads.
// - Arguments passed by value are the same in every step; values that change from step to step are in
//   StepScalars and UpdateScalars, in device memory. So the calls of a step can be recorded, compared (hence
//   the operators ==) and replayed (src/tensor/captured_step.h).
#pragma once
#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/quantization.h"

namespace gradus {

struct Cost;  // cost.h

struct CBuf {  // an input
  const void* p = nullptr;
  DType t = DType::F32;
  template <class T>
  constexpr const T* as() const {
    return static_cast<const T*>(p);
  }
  CBuf from(int64_t element) const { return {as<char>() + element * size_of(t), t}; }
  bool operator==(const CBuf&) const = default;
};

enum class Write : uint8_t { Set, Add };

struct Out {  // an output
  void* p = nullptr;
  DType t = DType::F32;
  Write w = Write::Set;
  constexpr bool wanted() const { return p != nullptr; }
  template <class T>
  constexpr T* as() const {
    return static_cast<T*>(p);
  }
  Out from(int64_t element) const { return {wanted() ? as<char>() + element * size_of(t) : nullptr, t, w}; }
  bool operator==(const Out&) const = default;
};

struct StepScalars {  // one per device, in its memory: values that change from step to step
  int64_t step = 1;   // number of this attempt at an update, for dropout; the host increments it
  // Loss scaling, if growth_interval > 0.
  float loss_scale = 1;         // factor of the loss, and so of the gradients
  int32_t overflows = 0;        // number of skipped updates in this attempt
  int64_t good_updates = 0;     // in a row, since the last overflow or doubling
  int64_t growth_interval = 0;  // loss_scale doubles after this number of good updates
};

struct UpdateScalars {  // one per optimizer, on its device
  float learning_rate = 0;
  float grad_norm = 0;    // written by clip_factor: the global L2 norm of the optimizer's gradients
  float clip_factor = 1;  // written by clip_factor and begin_update; updates multiply gradients by it
  int32_t skip = 0;       // 1: loss scaling is on and a gradient is not finite; the update changes nothing
  int64_t updates = 0;    // number of updates including this one, for Adam's bias correction (begin_update)
};

struct Ctx {
  StepScalars* scalars = nullptr;
  UpdateScalars* update = nullptr;  // those of the calling optimizer
  void* scratch = nullptr;  // this call's temporary memory, at least Cost::scratch bytes, 64-byte aligned
  void* workspace =
      nullptr;  // the device's fixed workspace (kWorkspaceBytes, kind `workspace`), for tiles and libraries
  void* stream = nullptr;      // cuda: the cudaStream_t of all calls
  const Cost* cost = nullptr;  // the cost of this call, for observers; kernels do not read it
  bool operator==(const Ctx& other) const {
    return scalars == other.scalars && update == other.update && scratch == other.scratch &&
           workspace == other.workspace && stream == other.stream;
  }
};
constexpr int64_t kWorkspaceBytes = int64_t(16) << 20;

// Marks an id or a target whose row or column is on another rank (local_ids), an expert's place without a
// token, and a token's choice without a place (place_tokens). No wrong id has this value by chance.
constexpr int32_t kElsewhere = INT32_MIN;

struct RowShape {
  int64_t rows, cols;
  bool operator==(const RowShape&) const = default;
};

enum class Trans : uint8_t { No, Yes };
struct Batch {  // strides in elements
  int64_t count = 1, stride_a = 0, stride_b = 0, stride_c = 0;
  bool operator==(const Batch&) const = default;
};
// C[M,N] = alpha * op(A)[M,K] op(B)[K,N]; ld* are the strides, in elements, between rows as stored.
// Two nested batch dimensions (say batch and head), each with its own strides.
struct MatmulShape {
  int64_t M, N, K;
  Trans ta = Trans::No, tb = Trans::No;
  int64_t lda, ldb, ldc;
  Batch batch[2] = {};
  float alpha = 1;
  bool operator==(const MatmulShape&) const = default;
};

// Where element (b, h, t, d) of a head tensor lies: b*batch + h*head + t*time + d, in elements.
struct HeadLayout {
  int64_t batch, head, time;
  bool operator==(const HeadLayout&) const = default;
};
enum class Mask : uint8_t { None, Causal };
// The random bits of a dropout call: Philox(seed, step, ordinal, global sample, element within the sample).
struct RandomKey {
  uint64_t seed = 0;
  uint32_t ordinal = 0;           // number of the dropout call in the forward pass
  int64_t first_sample = 0;       // index, in the whole batch, of the call's first sample
  const int64_t* step = nullptr;  // the tape's own copy, in device memory; nullptr: StepScalars::step
  int64_t first_element = 0;      // index, within a sample, of the call's first element: not 0 if the call
                                  // has a part of each sample, such as some heads of (H,T,T) weights
  constexpr int64_t step_in(const StepScalars& scalars) const { return step ? *step : scalars.step; }
  bool operator==(const RandomKey&) const = default;
};
// H heads of queries, KV heads of keys and values; H is a multiple of KV. Head h of q uses head h / (H/KV) of
// k and v (Ainslie et al. 2023, "GQA"). If KV == H, each head has its own keys and values.
struct AttentionShape {
  int64_t B, H, KV, T, D;
  HeadLayout qkv, y;  // the layout of q, k, v (and their gradients), and of the output (and its gradient)
  float scale;        // usually 1/sqrt(D)
  Mask mask = Mask::Causal;
  float dropout = 0;  // probability of dropping an attention weight
  RandomKey key = {};
  constexpr int64_t group() const { return H / KV; }  // heads of queries per head of keys and values
  bool operator==(const AttentionShape&) const = default;
};

constexpr double kRotaryBase = 10000;
// Packed q, k, v (B, T, (H + 2 KV) D), heads as in AttentionShape; rotary rotates the first `dims` of the D
// dimensions of each head of q and k.
struct RotaryShape {
  int64_t B, T, H, KV, D, dims;  // dims: even, 0 to D
  int64_t first = 0;             // position of the first of the T tokens; above 0 if other tokens precede it
  double base = kRotaryBase;     // above 1; a larger base slows down the rotation of the last pairs
  bool inverse = false;          // rotate by the negative angles: the backward of a rotation
  bool operator==(const RotaryShape&) const = default;
};

// A mixture of experts: each token of B sequences of T tokens chooses `chosen` of E experts; an expert has
// `capacity` places per sequence (Lepikhin et al. 2020, "GShard", sec. 2.2). No shape depends on what the
// tokens choose.
struct ExpertShape {
  int64_t B, T, E, chosen, capacity;
  constexpr int64_t tokens() const { return B * T; }
  constexpr int64_t choices() const { return B * T * chosen; }
  constexpr int64_t places() const { return E * B * capacity; }
  bool operator==(const ExpertShape&) const = default;
};

// One parameter in the list that an optimizer updates in one launch. With a master copy, the kernel updates
// `master` (fp32) and rounds it to `value`; without one, it updates `value`. It multiplies gradients by
// update->clip_factor.
struct ParamUpdate {
  int64_t n;
  Out value;  // updated in place
  CBuf grad;
  Out m, v;                          // the states, updated in place; entries.inc defines them
  Out master;                        // fp32, or nullptr
  bool decay;                        // whether weight decay applies to this parameter
  int64_t rows = 1;                  // Adafactor: the parameter is a matrix (rows, n / rows)
  Out m_scales = {}, v_scales = {};  // scales of 8-bit states: fp32, one per quantization block
  bool operator==(const ParamUpdate&) const = default;
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
  bool operator==(const AdamWArgs&) const = default;
};
struct SgdArgs {
  float momentum = 0, weight_decay = 0;
  bool nesterov = false, clips = true;  // clips: gradients are multiplied by clip_factor
  float scale = 1;                      // another factor of the gradients
  bool operator==(const SgdArgs&) const = default;
};
// The step size: the learning rate, or relative to the size of the weights and bounded by the learning rate.
enum class StepSize : uint8_t { Given, Relative };
struct AdafactorArgs {
  StepSize step_size = StepSize::Relative;
  float eps1 = 1e-30f, eps2 = 1e-3f, most = 1, power = 0.8f, weight_decay = 0;
  bool operator==(const AdafactorArgs&) const = default;
};

// The arguments of several calls that are fused into one function, which is compiled while the program runs
// (src/train/chains.h).
struct KernelChain {
  static constexpr int kCalls = 12, kBuffers = 24;
  using Function = void (*)(const Ctx&, RowShape, const KernelChain&);
  Function function = nullptr;  // nullptr on a device that computes nothing
  void* p[kBuffers] = {};
  int64_t width[kBuffers] = {};  // element i of the rows has element i % width of the buffer
  double number[kCalls] = {};    // each call's number, such as alpha or eps
  int64_t per_sample[kCalls] = {};
  RandomKey key[kCalls] = {};
  bool operator==(const KernelChain&) const = default;
};

// A device's kernels: pointers to functions, one for each entry of entries.inc.
struct Backend {
  const char* name;
#define GRADUS_KERNEL(entry, ...) void (*entry)(__VA_ARGS__);
#include "kernels/entries.inc"
};

const Backend& cpu_backend();
const Backend& cuda_backend();  // only in builds with CUDA=1, and so is cuda_error
const char* cuda_error();       // CUDA's message if it cannot run these kernels, else nullptr
const Backend& emu_backend();   // the sources of kernels/cuda, run on the CPU
const Backend& meta_backend();  // computes nothing

}  // namespace gradus
