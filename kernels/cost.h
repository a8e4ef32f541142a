// The cost of each kernel, as formulas of its shapes: floating-point operations, bytes that must move (each
// input read once, each output written once), scratch memory. Each entry of entries.inc has a function of the
// same name; T is the dtype of the activations. An addition, a multiplication, a division and an exp are one
// operation each. Each pass over a row recomputes the values that it needs. The meter sums costs; lessons
// compare them with measured time.
#pragma once
#include <algorithm>
#include <compare>

#include "kernels/kernels.h"

namespace gradus {

// The three classes of operations of a transformer (Ivanov et al. 2021, "Data movement is all you need", sec.
// 3).
enum class OpClass : uint8_t { Contraction, Normalization, Elementwise, Other };
constexpr int kOpClasses = 4;

struct Cost {
  OpClass op_class = OpClass::Other;
  int64_t flops = 0;
  int64_t bytes = 0;
  int64_t scratch = 0;       // bytes of Ctx::scratch that the kernel needs
  DType dtype = DType::F32;  // of a contraction's inputs: the speed of matrix units depends on it
  auto operator<=>(const Cost&) const = default;
};

namespace cost {

// A reduction over rows has this many partitions, whatever the number of threads.
constexpr int64_t partitions(int64_t rows) { return std::clamp<int64_t>(rows, 1, 32); }
// Statistics and partial sums are fp32, or fp64 for fp64.
constexpr int64_t stat_size(DType T) { return T == DType::F64 ? 8 : 4; }

// `flops` operations on each of n elements; `buffers` buffers of n elements are read or written.
constexpr Cost elementwise(int64_t n, DType T, int64_t flops, int64_t buffers) {
  return {OpClass::Elementwise, flops * n, buffers * n * size_of(T), 0};
}
constexpr Cost fill(int64_t n, DType T) { return elementwise(n, T, 0, 1); }
constexpr Cost cast(int64_t n, DType from, DType to) {
  return {OpClass::Elementwise, 0, n * (size_of(from) + size_of(to)), 0};
}
constexpr Cost cast_columns(RowShape s, DType from, DType to) { return cast(s.rows * s.cols, from, to); }
constexpr Cost add(int64_t n, DType T) { return elementwise(n, T, 1, 3); }
constexpr Cost multiply(int64_t n, DType T) { return elementwise(n, T, 1, 3); }
constexpr Cost scale(int64_t n, DType T) { return elementwise(n, T, 1, 2); }
constexpr Cost scale_by_ratio_inplace(int64_t n, DType T) { return elementwise(n, T, 1, 2); }
constexpr Cost gelu_fwd(int64_t n, DType T) { return elementwise(n, T, 9, 2); }
constexpr Cost gelu_bwd(int64_t n, DType T) { return elementwise(n, T, 18, 3); }
constexpr Cost gelu_erf_fwd(int64_t n, DType T) { return elementwise(n, T, 5, 2); }
constexpr Cost gelu_erf_bwd(int64_t n, DType T) { return elementwise(n, T, 11, 3); }
constexpr Cost tanh_fwd(int64_t n, DType T) { return elementwise(n, T, 1, 2); }
constexpr Cost tanh_bwd(int64_t n, DType T) { return elementwise(n, T, 3, 3); }
constexpr Cost dropout(RowShape s, DType T) { return elementwise(s.rows * s.cols, T, 2, 2); }
constexpr Cost bias_fwd(RowShape s, DType T) { return elementwise(s.rows * s.cols, T, 1, 2); }
// Buffers: gate, value and y; in backward gate, value, dy and two gradients.
constexpr Cost swiglu_fwd(RowShape s, DType T) { return elementwise(s.rows * s.cols, T, 4, 3); }
constexpr Cost swiglu_bwd(RowShape s, DType T) { return elementwise(s.rows * s.cols, T, 10, 5); }

// Three operations per rotated element. Scratch: cosine and sine of each position's angles.
constexpr Cost rotary(const RotaryShape& s, DType T) {
  const int64_t rows = s.B * s.T, turned = s.H + s.KV;
  return {OpClass::Elementwise, 3 * rows * turned * s.dims, 2 * rows * (turned + s.KV) * s.D * size_of(T),
          s.T * s.dims * stat_size(T)};
}

constexpr Cost normalization(RowShape s, DType T, int64_t flops, int64_t buffers, int64_t scratch = 0) {
  return {OpClass::Normalization, flops * s.rows * s.cols, buffers * s.rows * s.cols * size_of(T), scratch};
}
// Scratch: a row of partial sums for each partition, and one row for their total.
constexpr Cost bias_bwd(RowShape s, DType T) {
  return normalization(s, T, 1, 1, (partitions(s.rows) + 1) * s.cols * stat_size(T));
}
constexpr Cost layernorm_fwd(RowShape s, DType T) { return normalization(s, T, 8, 2); }
constexpr Cost layernorm_bwd(RowShape s, DType T) {
  return normalization(s, T, 18, 3, (2 * partitions(s.rows) + 1) * s.cols * stat_size(T));
}
constexpr Cost add_layernorm_fwd(RowShape s, DType T) { return normalization(s, T, 9, 4); }
constexpr Cost add_layernorm_bwd(RowShape s, DType T) {
  return normalization(s, T, 19, 4, layernorm_bwd(s, T).scratch);
}
// The backward needs the same scratch as bias_bwd.
constexpr Cost rmsnorm_fwd(RowShape s, DType T) { return normalization(s, T, 4, 2); }
constexpr Cost rmsnorm_bwd(RowShape s, DType T) { return normalization(s, T, 12, 3, bias_bwd(s, T).scratch); }
constexpr Cost bias_gelu_fwd(RowShape s, DType T) { return elementwise(s.rows * s.cols, T, 10, 2); }
constexpr Cost bias_gelu_bwd(RowShape s, DType T) {
  return {OpClass::Elementwise, 20 * s.rows * s.cols, 3 * s.rows * s.cols * size_of(T),
          bias_bwd(s, T).scratch};
}
constexpr Cost softmax_fwd(RowShape s, DType T) { return normalization(s, T, 5, 2); }
constexpr Cost softmax_bwd(RowShape s, DType T) { return normalization(s, T, 4, 3); }
// Scratch: one loss per row.
constexpr Cost cross_entropy_fwd(RowShape s, DType T) {
  return normalization(s, T, 4, 1, s.rows * stat_size(T));
}
constexpr Cost cross_entropy_bwd_inplace(RowShape s, DType T) { return normalization(s, T, 3, 2); }
constexpr Cost count_targets(int64_t n) { return elementwise(n, DType::I32, 2, 1); }
// One logit per row is read.
constexpr Cost cross_entropy_sums(RowShape s, DType T) {
  return {OpClass::Other, 2 * s.rows, s.rows * (size_of(T) + 4 + 4 * stat_size(T)), 0};
}
constexpr Cost cross_entropy_of_sums(int64_t rows, DType stats) {
  return {OpClass::Other, 4 * rows, rows * (4 + 4 * size_of(stats)), rows * size_of(stats)};
}
constexpr Cost local_ids(int64_t n) { return elementwise(n, DType::I32, 2, 2); }

constexpr Cost embedding_fwd(RowShape s, DType T) {
  return {OpClass::Other, 0, 2 * s.rows * s.cols * size_of(T), 0};
}
// Scratch: the rows sorted by id (int64).
constexpr Cost embedding_bwd(RowShape s, DType T) {
  return {OpClass::Other, s.rows * s.cols, 2 * s.rows * s.cols * size_of(T), 8 * s.rows};
}

// Each choice reads all logits; softmax over the chosen ones. Scratch: `experts`, if that is not wanted.
constexpr Cost choose_experts_fwd(const ExpertShape& s, DType T) {
  return {OpClass::Normalization, s.choices() * (s.E + 5),
          (s.tokens() * s.E + s.choices()) * size_of(T) + 4 * s.choices(), 4 * s.choices()};
}
constexpr Cost choose_experts_bwd(const ExpertShape& s, DType T) {
  return {OpClass::Normalization, 4 * s.choices(),
          (s.tokens() * s.E + 2 * s.choices()) * size_of(T) + 4 * s.choices()};
}
// Scratch: the number of taken places per sequence and expert.
constexpr Cost place_tokens(const ExpertShape& s) {
  return {OpClass::Other, s.choices(), 4 * (2 * s.choices() + s.places()), 4 * s.E * s.B};
}
// The largest possible number of places with a token.
constexpr int64_t expert_rows(const ExpertShape& s) { return std::min(s.places(), s.choices()); }
constexpr Cost combine_experts_fwd(const ExpertShape& s, int64_t cols, DType T) {
  return {OpClass::Other, 2 * expert_rows(s) * cols,
          ((expert_rows(s) + s.tokens()) * cols + s.choices()) * size_of(T) + 4 * s.choices()};
}
// Bytes: rows, dy, drows; weights, dweights; slots, tokens.
constexpr Cost combine_experts_bwd(const ExpertShape& s, int64_t cols, DType T) {
  return {OpClass::Other, 3 * expert_rows(s) * cols,
          ((expert_rows(s) + s.tokens() + s.places()) * cols + 2 * s.choices()) * size_of(T) +
              4 * (s.choices() + s.places())};
}
// Softmax p, and the sum of f p, where each row is divided once. Scratch: f (B, E), and one sum per row.
constexpr Cost balance_loss_fwd(const ExpertShape& s, DType T) {
  return {OpClass::Normalization, 6 * s.tokens() * s.E, s.tokens() * s.E * size_of(T) + 4 * s.choices(),
          (s.B * s.E + s.tokens()) * stat_size(T)};
}
constexpr Cost balance_loss_bwd(const ExpertShape& s, DType T) {
  return {OpClass::Normalization, 9 * s.tokens() * s.E, 2 * s.tokens() * s.E * size_of(T) + 4 * s.choices(),
          s.B * s.E * stat_size(T)};
}

// 2 M N K FLOPs per product. Bytes: A, B and C once.
constexpr Cost matmul(const MatmulShape& s, DType T) {
  const int64_t count = s.batch[0].count * s.batch[1].count;
  return {OpClass::Contraction, 2 * count * s.M * s.N * s.K,
          count * (s.M * s.K + s.K * s.N + s.M * s.N) * size_of(T), 0, T};
}
// The number of pairs of query and key that the mask does not hide.
constexpr int64_t attention_pairs(const AttentionShape& s) {
  return s.B * s.H * (s.mask == Mask::Causal ? s.T * (s.T + 1) / 2 : s.T * s.T);
}
// The number of elements of q (the same as of y, dy and dq), and of k (the same as of v, dk and dv). Keys and
// values that several heads of queries share count once.
constexpr int64_t attention_q(const AttentionShape& s) { return s.B * s.H * s.T * s.D; }
constexpr int64_t attention_k(const AttentionShape& s) { return s.B * s.KV * s.T * s.D; }
// Forward: q k^T and P v, 2 D FLOPs each per pair. Backward: dv, dP, dq, dk. The softmax is not counted, and
// neither is the sum of dk and dv over the heads of queries that share them. Bytes: q, y; k, v; P.
constexpr Cost attention_plain_fwd(const AttentionShape& s, DType T) {
  return {OpClass::Contraction, 4 * s.D * attention_pairs(s),
          (2 * attention_q(s) + 2 * attention_k(s) + s.B * s.H * s.T * s.T) * size_of(T), 0, T};
}
// Bytes: q, dy, dq; k, v, dk, dv; P. Scratch: rowsum(P dP) of each query.
constexpr Cost attention_plain_bwd(const AttentionShape& s, DType T) {
  return {OpClass::Contraction, 8 * s.D * attention_pairs(s),
          (3 * attention_q(s) + 4 * attention_k(s) + s.B * s.H * s.T * s.T) * size_of(T),
          s.B * s.H * s.T * stat_size(T), T};
}

// The FLOPs are those of attention_plain: the recomputation of the scores in backward is not counted. Bytes:
// q, y; k, v; lse, which is (B, H, T).
constexpr Cost attention_flash_fwd(const AttentionShape& s, DType T) {
  return {OpClass::Contraction, 4 * s.D * attention_pairs(s),
          (2 * attention_q(s) + 2 * attention_k(s)) * size_of(T) + s.B * s.H * s.T * stat_size(T), 0, T};
}
constexpr Cost attention_merge_inplace(const AttentionShape& s, DType T) {
  return {OpClass::Normalization, 3 * attention_q(s),
          attention_q(s) * (size_of(T) + 2 * stat_size(T)) + 3 * s.B * s.H * s.T * stat_size(T), 0};
}
// Bytes: q, y, dy, dq; k, v, dk, dv; lse. Scratch: rowsum(dy y) of each query.
constexpr Cost attention_flash_bwd(const AttentionShape& s, DType T) {
  return {OpClass::Contraction, 8 * s.D * attention_pairs(s),
          (4 * attention_q(s) + 4 * attention_k(s)) * size_of(T) + s.B * s.H * s.T * stat_size(T),
          s.B * s.H * s.T * stat_size(T), T};
}

// n: the number of elements of all tensors together. Scratch: an fp64 partial sum for each thread block of a
// GPU.
constexpr int64_t kNormBlocks = 256;
constexpr Cost sum_squares(int64_t n, DType T) {
  return {OpClass::Elementwise, 2 * n, n * size_of(T), kNormBlocks * size_of(DType::F64)};
}
constexpr Cost clip_factor(int64_t n) { return {OpClass::Elementwise, n, n * size_of(DType::F64)}; }
// Per element: the gradient is read; the states and the master copy (or, without one, the weight) are read
// and written; with a master copy the weight is only written. `flops` are those of the algorithm without
// clipping and weight decay.
constexpr Cost update(ParamList list, int64_t flops) {
  Cost sum{OpClass::Elementwise};
  const auto size = [](const Out& o) { return o.wanted() ? size_of(o.t) : 0; };
  for (int64_t i = 0; i < list.count; ++i) {
    const ParamUpdate& u = list.items[i];
    const int64_t weight = u.master.wanted() ? 2 * size(u.master) + size(u.value) : 2 * size(u.value);
    sum.flops += flops * u.n;
    sum.bytes += (size_of(u.grad.t) + weight + 2 * size(u.m) + 2 * size(u.v)) * u.n;
  }
  return sum;
}
constexpr Cost sgd(ParamList list) { return update(list, 4); }
constexpr Cost adamw(ParamList list) { return update(list, 14); }
// The kernel also dequantizes and quantizes each state.
constexpr Cost adamw_8bit(ParamList list) {
  Cost sum = update(list, 14 + 2 * (2 + 4));
  for (int64_t i = 0; i < list.count; ++i)
    sum.bytes += 2 * 2 * size_of(DType::F32) * state_shape(list.items[i].n).blocks();
  return sum;
}
// Three passes, because each needs sums over all elements from the pass before. So the gradient is read three
// times, and the weight once more if steps are relative to it. Scratch, for the largest matrix: the partial
// sums of its columns, and two numbers for each column and row.
constexpr Cost adafactor(ParamList list, StepSize step_size) {
  Cost sum{OpClass::Elementwise};
  for (int64_t i = 0; i < list.count; ++i) {
    ParamUpdate u = list.items[i];
    const int64_t rows = u.rows, cols = u.n / std::max<int64_t>(rows, 1), size = stat_size(u.value.t);
    u.m = u.v = {};
    const int64_t weight = size_of(u.master.wanted() ? u.master.t : u.value.t);
    sum.bytes += update({1, &u}, 0).bytes + 2 * size_of(u.grad.t) * u.n + 2 * size * (rows + cols);
    if (step_size == StepSize::Relative) sum.bytes += weight * u.n;
    sum.flops += (step_size == StepSize::Relative ? 12 : 10) * u.n;
    sum.scratch = std::max(sum.scratch, ((partitions(rows) + 2) * cols + 2 * rows + 2) * size);
  }
  return sum;
}
// Two passes, because the second needs the norm.
constexpr Cost muon_direction(int64_t n, DType grad, DType m, DType direction) {
  return {OpClass::Elementwise, 12 * n, n * (2 * size_of(grad) + 3 * size_of(m) + size_of(direction)),
          kNormBlocks * size_of(DType::F64)};
}

// A large block is divided into pieces; the limits of the pieces (three numbers each, in scratch) are merged.
constexpr int64_t quant_pieces(const QuantShape& s) { return std::clamp<int64_t>(s.block >> 16, 1, 256); }
// Codes, scales and offsets are written or read once. quantize compares an element with the limits, shifts,
// scales and rounds it; dequantize scales and shifts a value.
constexpr int64_t quantized_bytes(const QuantShape& s) {
  return s.code_bytes() + s.blocks() * (s.range == Range::ZeroPoint ? 8 : 4);
}
constexpr Cost quantize(const QuantShape& s, DType T) {
  return {OpClass::Elementwise, 4 * s.n, s.n * size_of(T) + quantized_bytes(s),
          s.blocks() * quant_pieces(s) * int64_t(sizeof(Limits))};
}
constexpr Cost dequantize(const QuantShape& s, DType T) {
  return {OpClass::Elementwise, 2 * s.n, s.n * size_of(T) + quantized_bytes(s)};
}

}  // namespace cost
}  // namespace gradus
