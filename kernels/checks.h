// The checks of arguments, with which the functions of every backend begin, and the dispatch on Write. An
// entry whose checks take more than one line has a function check_ENTRY.
#pragma once
#include <initializer_list>

#include "kernels/kernels.h"

namespace gradus {

// Calls f.operator()<W>() with the Write as a constant, so that loops have no branch.
template <class F>
void visit_write(Write w, F&& f) {
  if (w == Write::Set)
    f.template operator()<Write::Set>();
  else
    f.template operator()<Write::Add>();
}

struct NamedBuffer {  // a buffer of a call, and its name in messages
  const char* name;
  const void* p;
  DType t;
  NamedBuffer(const char* name, CBuf x) : name(name), p(x.p), t(x.t) {}
  NamedBuffer(const char* name, Out y) : name(name), p(y.p), t(y.t) {}
};

// Every buffer that is present must have the dtype.
inline void check_dtype(const char* op, DType expected, std::initializer_list<NamedBuffer> buffers) {
  for (const NamedBuffer& b : buffers)
    check(b.p == nullptr || b.t == expected, op, ": ", b.name, " is ", name_of(b.t), " where ",
          name_of(expected), " is needed; cast it first");
}
// Statistics are fp32, or fp64 when T is.
inline void check_stats(const char* op, DType T, std::initializer_list<NamedBuffer> buffers) {
  check_dtype(op, T == DType::F64 ? T : DType::F32, buffers);
}
// Gradients of parameters and states of optimizers may be T or fp32.
inline void check_t_or_fp32(const char* op, DType T, std::initializer_list<NamedBuffer> buffers) {
  for (const NamedBuffer& b : buffers)
    if (b.t != DType::F32) check_dtype(op, T, {b});
}
inline void check_int32(const char* op, const char* name, CBuf x) {
  check(x.t == DType::I32, op, ": ", name, " are ", name_of(x.t), "; they must be int32");
}
// Indices that a kernel writes.
inline void check_indices(const char* op, const char* name, Out y) {
  check_int32(op, name, {y.p, y.t});
  check(y.w == Write::Set, op, ": ", name, " are replaced; Write::Add has no meaning here");
}

inline void check_dropout(CBuf x, Out y, float p) {
  check_dtype("dropout", x.t, {{"y", y}});
  check(p >= 0 && p <= 1, "dropout: p is ", p, "; it is a probability, from 0 to 1");
}
inline void check_scale_by_ratio_inplace(CBuf a, CBuf b, Out x) {
  constexpr const char* op = "scale_by_ratio_inplace";
  check(x.w == Write::Set, op, ": x is replaced; Write::Add has no meaning here");
  check_stats(op, x.t, {{"a", a}, {"b", b}});
}
inline void check_layernorm_fwd(CBuf x, CBuf gamma, CBuf beta, Out y, Out stats) {
  check_dtype("layernorm_fwd", x.t, {{"y", y}, {"gamma", gamma}, {"beta", beta}});
  check_stats("layernorm_fwd", x.t, {{"stats", stats}});
}
inline void check_layernorm_bwd(CBuf x, CBuf gamma, CBuf stats, CBuf dy, Out dx, Out dgamma, Out dbeta) {
  check_dtype("layernorm_bwd", x.t, {{"gamma", gamma}, {"dy", dy}, {"dx", dx}});
  check_t_or_fp32("layernorm_bwd", x.t, {{"dgamma", dgamma}, {"dbeta", dbeta}});
  check_stats("layernorm_bwd", x.t, {{"stats", stats}});
}
inline void check_add_layernorm_fwd(CBuf a, CBuf b, CBuf gamma, CBuf beta, Out sum, Out y, Out stats) {
  constexpr const char* op = "add_layernorm_fwd";
  check_dtype(op, a.t, {{"b", b}, {"gamma", gamma}, {"beta", beta}, {"sum", sum}, {"y", y}});
  check_stats(op, a.t, {{"stats", stats}});
  check(sum.wanted() && sum.w == Write::Set, op,
        ": `sum` is the input of the norm, so it must be given, with ", "Write::Set");
}
inline void check_add_layernorm_bwd(CBuf x, CBuf gamma, CBuf stats, CBuf dy, CBuf dsum, Out dx, Out dgamma,
                                    Out dbeta) {
  check_layernorm_bwd(x, gamma, stats, dy, dx, dgamma, dbeta);
  check_dtype("add_layernorm_bwd", x.t, {{"dsum", dsum}});
}
inline void check_rmsnorm_fwd(CBuf x, CBuf gamma, Out y, Out stats) {
  check_dtype("rmsnorm_fwd", x.t, {{"y", y}, {"gamma", gamma}});
  check_stats("rmsnorm_fwd", x.t, {{"stats", stats}});
}
inline void check_rmsnorm_bwd(CBuf x, CBuf gamma, CBuf stats, CBuf dy, Out dx, Out dgamma) {
  check_dtype("rmsnorm_bwd", x.t, {{"gamma", gamma}, {"dy", dy}, {"dx", dx}});
  check_t_or_fp32("rmsnorm_bwd", x.t, {{"dgamma", dgamma}});
  check_stats("rmsnorm_bwd", x.t, {{"stats", stats}});
}
inline void check_bias_gelu_bwd(CBuf x, CBuf b, CBuf dy, Out dx, Out db) {
  check_dtype("bias_gelu_bwd", x.t, {{"b", b}, {"dy", dy}, {"dx", dx}});
  check_t_or_fp32("bias_gelu_bwd", x.t, {{"db", db}});
}
inline void check_cross_entropy_fwd(CBuf logits, CBuf targets, CBuf count, Out loss, Out lse) {
  check_int32("cross_entropy_fwd", "targets", targets);
  check_stats("cross_entropy_fwd", logits.t, {{"count", count}, {"loss", loss}, {"lse", lse}});
}
inline void check_cross_entropy_bwd_inplace(CBuf targets, CBuf count, CBuf lse, CBuf dloss, Out logits) {
  constexpr const char* op = "cross_entropy_bwd_inplace";
  check_int32(op, "targets", targets);
  check(logits.w == Write::Set, op, ": the logits are replaced; Write::Add has no meaning here");
  check_stats(op, logits.t, {{"count", count}, {"dloss", dloss}, {"lse", lse}});
}
inline void check_cross_entropy_sums(CBuf logits, CBuf targets, CBuf part_lse, CBuf max, Out sums) {
  check_int32("cross_entropy_sums", "targets", targets);
  check_stats("cross_entropy_sums", logits.t, {{"part_lse", part_lse}, {"max", max}, {"sums", sums}});
}
inline void check_cross_entropy_of_sums(CBuf targets, CBuf count, CBuf max, CBuf sums, Out loss, Out lse) {
  check_int32("cross_entropy_of_sums", "targets", targets);
  check_stats("cross_entropy_of_sums", max.t,
              {{"count", count}, {"max", max}, {"sums", sums}, {"loss", loss}, {"lse", lse}});
}
inline void check_local_ids(CBuf ids, Out y) {
  check_int32("local_ids", "ids", ids);
  check_indices("local_ids", "ids", y);
}
inline void check_embedding_fwd(CBuf table, CBuf ids, Out y) {
  check_dtype("embedding_fwd", table.t, {{"y", y}});
  check_int32("embedding_fwd", "ids", ids);
}
inline void check_embedding_bwd(CBuf ids, CBuf dy, Out dtable) {
  check_t_or_fp32("embedding_bwd", dy.t, {{"dtable", dtable}});
  check_int32("embedding_bwd", "ids", ids);
}
inline void check_expert_shape(const char* op, const ExpertShape& s) {
  check(s.B >= 0 && s.T >= 0, op, ": ", s.B, " sequences of ", s.T, " tokens; sizes must not be negative");
  check(s.chosen >= 1 && s.chosen <= s.E, op, ": each token chooses ", s.chosen, " of ", s.E,
        " experts; it must choose at least 1, and at most all");
  check(s.capacity >= 0 && s.capacity <= s.T, op, ": an expert has ", s.capacity,
        " places for a sequence of ", s.T, " tokens; the capacity must be from 0 to the number of tokens");
  check(std::max(s.tokens(), s.places()) <= INT32_MAX, op, ": ", s.tokens(), " tokens and ", s.places(),
        " places of experts; both are numbered in int32");
}
inline void check_choose_experts_fwd(const ExpertShape& s, CBuf logits, Out experts, Out weights) {
  constexpr const char* op = "choose_experts_fwd";
  check_expert_shape(op, s);
  check_indices(op, "experts", experts);
  check_dtype(op, logits.t, {{"weights", weights}});
}
inline void check_choose_experts_bwd(const ExpertShape& s, CBuf experts, CBuf weights, CBuf dweights,
                                     Out dlogits) {
  constexpr const char* op = "choose_experts_bwd";
  check_expert_shape(op, s);
  check_int32(op, "experts", experts);
  check_dtype(op, weights.t, {{"dweights", dweights}, {"dlogits", dlogits}});
}
inline void check_place_tokens(const ExpertShape& s, CBuf experts, Out slots, Out tokens) {
  check_expert_shape("place_tokens", s);
  check_int32("place_tokens", "experts", experts);
  check_indices("place_tokens", "slots", slots);
  check_indices("place_tokens", "tokens", tokens);
}
inline void check_combine_experts_fwd(const ExpertShape& s, CBuf rows, CBuf slots, CBuf weights, Out y) {
  constexpr const char* op = "combine_experts_fwd";
  check_expert_shape(op, s);
  check_int32(op, "slots", slots);
  check_dtype(op, rows.t, {{"weights", weights}, {"y", y}});
}
inline void check_combine_experts_bwd(const ExpertShape& s, CBuf rows, CBuf slots, CBuf tokens, CBuf weights,
                                      CBuf dy, Out drows, Out dweights) {
  constexpr const char* op = "combine_experts_bwd";
  check_expert_shape(op, s);
  check_int32(op, "slots", slots);
  if (drows.wanted()) check_int32(op, "tokens", tokens);
  check_dtype(op, dy.t, {{"rows", rows}, {"weights", weights}, {"drows", drows}, {"dweights", dweights}});
}
inline void check_balance_loss_fwd(const ExpertShape& s, CBuf logits, CBuf experts, CBuf count, Out loss) {
  check_expert_shape("balance_loss_fwd", s);
  check_int32("balance_loss_fwd", "experts", experts);
  check_stats("balance_loss_fwd", logits.t, {{"count", count}, {"loss", loss}});
}
inline void check_balance_loss_bwd(const ExpertShape& s, CBuf logits, CBuf experts, CBuf count, CBuf dloss,
                                   Out dlogits) {
  check_expert_shape("balance_loss_bwd", s);
  check_int32("balance_loss_bwd", "experts", experts);
  check_dtype("balance_loss_bwd", logits.t, {{"dlogits", dlogits}});
  check_stats("balance_loss_bwd", logits.t, {{"count", count}, {"dloss", dloss}});
}
inline void check_matmul(const MatmulShape& s, CBuf a, CBuf b, Out c) {
  check(s.M >= 0 && s.N >= 0 && s.K >= 0, "matmul: sizes M ", s.M, ", N ", s.N, ", K ", s.K,
        " must not be negative");
  check_dtype("matmul", a.t, {{"B", b}});
  check(c.t == a.t || (c.t == DType::F32 && a.t != DType::F64), "matmul: A and B are ", name_of(a.t),
        ", C is ", name_of(c.t), "; C must have their type, or fp32 if A and B have 16 bits");
}
inline void check_heads(const char* op, const auto& s) {
  check(s.H > 0 && s.KV > 0 && s.H % s.KV == 0, op, ": ", s.H, " heads of queries cannot share ", s.KV,
        " of keys and values; H must be a multiple of KV, and both at least 1");
}
inline void check_attention_plain_fwd(const AttentionShape& s, CBuf q, CBuf k, CBuf v, Out probs, Out y) {
  check_heads("attention_plain_fwd", s);
  check_dtype("attention_plain_fwd", q.t, {{"k", k}, {"v", v}, {"probs", probs}, {"y", y}});
}
inline void check_attention_plain_bwd(const AttentionShape& s, CBuf q, CBuf k, CBuf v, CBuf probs, CBuf dy,
                                      Out dq, Out dk, Out dv) {
  check_heads("attention_plain_bwd", s);
  check_dtype("attention_plain_bwd", q.t,
              {{"k", k}, {"v", v}, {"probs", probs}, {"dy", dy}, {"dq", dq}, {"dk", dk}, {"dv", dv}});
}
inline void check_attention_flash_fwd(const AttentionShape& s, CBuf q, CBuf k, CBuf v, Out y, Out lse) {
  check_heads("attention_flash_fwd", s);
  check_dtype("attention_flash_fwd", q.t, {{"k", k}, {"v", v}, {"y", y}});
  check_stats("attention_flash_fwd", q.t, {{"lse", lse}});
}
inline void check_attention_merge_inplace(const AttentionShape& s, CBuf y, CBuf lse, Out sum, Out total) {
  constexpr const char* op = "attention_merge_inplace";
  check_heads(op, s);
  check(sum.w == Write::Set && total.w == Write::Set, op,
        ": sums are replaced; Write::Add has no meaning here");
  check_stats(op, y.t, {{"lse", lse}, {"sum", sum}, {"total", total}});
}
inline void check_attention_flash_bwd(const AttentionShape& s, CBuf q, CBuf k, CBuf v, CBuf y, CBuf lse,
                                      CBuf dy, Out dq, Out dk, Out dv) {
  constexpr const char* op = "attention_flash_bwd";
  check_heads(op, s);
  check_dtype(op, q.t, {{"k", k}, {"v", v}, {"y", y}, {"dy", dy}, {"dq", dq}, {"dk", dk}, {"dv", dv}});
  check_stats(op, q.t, {{"lse", lse}});
}
inline void check_rotary(const RotaryShape& s, CBuf x, Out y) {
  check_heads("rotary", s);
  check(s.dims >= 0 && s.dims % 2 == 0 && s.dims <= s.D, "rotary: ", s.dims, " of the ", s.D,
        " dimensions of a head cannot be rotated; it must be an even number, at most ", s.D);
  check(s.base > 1, "rotary: the base is ", s.base, "; it must be more than 1");
  check(s.first >= 0, "rotary: the first position is ", s.first, "; positions count from 0");
  check_dtype("rotary", y.t, {{"x", x}});
}
// Checks an optimizer's update of one parameter.
inline void check_update(const char* op, const ParamUpdate& u) {
  const DType T = u.value.t;
  check_t_or_fp32(op, T, {{"a gradient", u.grad}});
  check_t_or_fp32(op, T, {{"the first moment (momentum)", u.m}, {"the second moment", u.v}});
  check_dtype(op, DType::F32, {{"the master copy", u.master}});
  check(!u.master.wanted() || T != DType::F64, op, ": a value in fp64 needs no master copy");
}
// m and v are codes, so check_update is called without them.
inline void check_adamw_8bit(CBuf m_codebook, CBuf v_codebook, ParamUpdate u) {
  constexpr const char* op = "adamw_8bit";
  check(u.value.t != DType::F64, op, ": the value is fp64, but this kernel computes in fp32");
  check_dtype(op, DType::U8,
              {{"the codebook of m", m_codebook}, {"the codebook of v", v_codebook}, {"m", u.m}, {"v", u.v}});
  check_dtype(op, DType::F32, {{"m's scales", u.m_scales}, {"v's scales", u.v_scales}});
  check(u.n == 0 || (u.m.wanted() && u.v.wanted() && u.m_scales.wanted() && u.v_scales.wanted()), op,
        ": m, v and the scales of both must be given");
  u.m = u.v = {};
  check_update(op, u);
}
// The states are statistics of the rows and columns of the parameter.
inline void check_adafactor(const ParamUpdate& u) {
  check(u.rows > 0 && u.n % u.rows == 0, "adafactor: ", u.rows, " rows do not divide the ", u.n,
        " elements of a matrix");
  check_stats("adafactor", u.value.t, {{"the columns' state", u.m}, {"the rows' state", u.v}});
  check_update("adafactor", u);
}
inline void check_updates(const char* op, const UpdateScalars& u) {
  check(u.updates > 0 || u.skip, op, ": the number of updates is ", u.updates,
        "; it includes the current update, so the first is 1");
}

inline void check_quantized(const char* op, const QuantShape& s, CBuf codebook, NamedBuffer codes,
                            NamedBuffer scales, NamedBuffer offsets) {
  check(s.bits == 8 || s.bits == 4, op, ": codes of ", s.bits, " bits; a code has 8 or 4 bits");
  check(s.n >= 0 && s.block > 0 && (s.bits == 8 || s.block % 2 == 0 || s.block >= s.n), op, ": blocks of ",
        s.block, " for ", s.n,
        " elements; a block has at least one, and with 4 bits an even number, because ",
        "two codes share a byte");
  check_dtype(op, DType::U8, {{"the codebook", codebook}, codes});
  check_dtype(op, DType::F32, {scales, offsets});
  check((codes.p != nullptr && scales.p != nullptr) || s.n == 0, op, ": codes and scales must both be given");
  check((offsets.p != nullptr) == (s.range == Range::ZeroPoint) || s.n == 0, op,
        ": Range::ZeroPoint needs offsets; the other ranges have none");
}
inline void check_quantize(const QuantShape& s, CBuf codebook, Out codes, Out scales, Out offsets) {
  check_quantized("quantize", s, codebook, {"codes", codes}, {"scales", scales}, {"offsets", offsets});
  check(codes.w == Write::Set && scales.w == Write::Set && offsets.w == Write::Set,
        "quantize: codes and their scales are replaced; Write::Add has no meaning here");
}
inline void check_dequantize(const QuantShape& s, CBuf codebook, CBuf codes, CBuf scales, CBuf offsets) {
  check_quantized("dequantize", s, codebook, {"codes", codes}, {"scales", scales}, {"offsets", offsets});
}

}  // namespace gradus
