// Every differentiable operation, a line each. The file of that name has the formula, the backward and what
// is saved. x is (..., C): all leading dimensions count as rows.
#pragma once
#include "src/autograd/tape.h"
#include "src/ops/run.h"

namespace gradus {

Tensor add(const Tensor& a, const Tensor& b);  // a + b, same shapes
// {a + b, layernorm(a + b)}: the residual stream, and what the next branch of a pre-norm block reads
std::vector<Tensor> add_layernorm(const Tensor& a, const Tensor& b, const Tensor& gamma, const Tensor& beta,
                                  double eps = 1e-5);
Tensor add_positions(const Tensor& x, const Tensor& table);  // x (B,T,C) + table[0..T) (Tmax,C)
// The heads of attention: of queries, and of keys and values, which may be fewer (grouped-query attention).
struct Heads {
  int64_t q, kv;
  Heads(int64_t heads) : q(heads), kv(heads) {}  // attention_plain(qkv, 12, ...)
  Heads(int64_t q, int64_t kv) : q(q), kv(kv) {}
};
// D of packed q, k, v; qkv that is not (B,T,(H + 2 KV) D) is refused.
int64_t head_size(const char* op, const Tensor& qkv, Heads heads);
// Attention, qkv (B,T,(H + 2 KV) D) -> (B,T,H D), in two ways to the same result: one saves B H T T
// probabilities, the other B H T log-sum-exps. If the heads of queries are shared out among ranks, these are
// the ones from first_head on.
Tensor attention_plain(const Tensor& qkv, Heads heads, Mask mask, double dropout, int64_t first_head = 0);
Tensor attention_flash(const Tensor& qkv, Heads heads, Mask mask, double dropout, int64_t first_head = 0);
Tensor bias_gelu(const Tensor& x, const Tensor& bias);  // gelu(x + bias), for a linear without its bias
Tensor concatenate(const std::vector<Tensor>& parts);   // along the last dimension
// (...,V), int32 (...) from -1 on, one number -> scalar
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& count = {});
// Its backward, for ops that save the same: logits, targets, lse, count.
void cross_entropy_op_bwd(const Node&, const Tensor& dloss, Grads& dx);
// x (B, ...): sample by sample; or of each sample the elements from first_element on
Tensor dropout(const Tensor& x, double p, int64_t first_element = 0);
Tensor embedding(const Tensor& table, const Tensor& ids);  // (V,C), int32 (...) -> (...,C)
Tensor gelu(const Tensor& x);                              // by tanh, as GPT-2 has it
Tensor gelu_erf(const Tensor& x);                          // exact, as BERT and GPT-NeoX have it
Tensor layernorm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps = 1e-5);
Tensor linear(const Tensor& x, const Tensor& weight,
              const Tensor& bias = {});  // x W^T + b, W (out,in), b (out)
// cross_entropy(linear(x, weight), targets, count), with the logits of `rows` rows at a time
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets, const Tensor& count,
                            int64_t rows);
Tensor multiply(const Tensor& a, const Tensor& b);  // a * b, same shapes
// x / root mean square of x, times gamma
Tensor rmsnorm(const Tensor& x, const Tensor& gamma, double eps = 1e-5);
// Turns q and k of each head by its position: the first `dims` dimensions. qkv (B,T,(H + 2 KV) D) -> the same
// shape; its first token is at position `first`.
Tensor rotary(const Tensor& qkv, Heads heads, int64_t dims, int64_t first = 0, double base = kRotaryBase);
Tensor scale(const Tensor& x, double factor);                 // factor * x
Tensor select_token(const Tensor& x, int64_t t);              // (B,T,C) -> (B,C): row t of each sample
Tensor slice(const Tensor& x, int64_t begin, int64_t count);  // of the last dimension
Tensor softmax(const Tensor& x);                              // over the last dimension
std::vector<Tensor> split(const Tensor& x,
                          const std::vector<int64_t>& counts);  // the last dimension, in parts
Tensor swiglu(const Tensor& x);  // (...,2C), gate and value -> (...,C): silu(gate) * value
Tensor tanh(const Tensor& x);

// A mixture of experts. Each token of logits (B,T,E) chooses experts, which have `capacity` places for each
// sequence: which it chose, in descending order of their weights (B,T,chosen), and what place it got.
struct Routing {
  ExpertShape shape;
  Tensor experts, weights, slots, tokens;
};
Routing choose_experts(const Tensor& logits, int64_t chosen, int64_t capacity);
Tensor dispatch(const Tensor& x, const Routing& routing);            // (B,T,C) -> (E,B,capacity,C)
Tensor expert_linear(const Tensor& x, const Tensor& weight);         // (E,...,in), (E,out,in) -> (E,...,out)
Tensor combine_experts(const Tensor& rows, const Routing& routing);  // (E,B,capacity,C) -> (B,T,C)
// (B,T,E), one number -> scalar: alpha if all experts are used equally, alpha E / chosen if all tokens choose
// the same ones
Tensor balance_loss(const Tensor& logits, const Routing& routing, double alpha, const Tensor& count = {});

}  // namespace gradus
