// All differentiable operations, one line each. The file of the same name has the formula, the backward and
// the saved tensors. x is (..., C): all leading dimensions count as rows.
#pragma once
#include "src/autograd/tape.h"
#include "src/ops/run.h"

namespace gradus {

Tensor add(const Tensor& a, const Tensor& b);  // a + b, same shapes
// {a + b, layernorm(a + b)}: the residual stream, and the input of the next branch of a pre-norm block
std::vector<Tensor> add_layernorm(const Tensor& a, const Tensor& b, const Tensor& gamma, const Tensor& beta,
                                  double eps = 1e-5);
Tensor add_positions(const Tensor& x, const Tensor& table);  // x (B,T,C) + table[0..T) (Tmax,C)
// The heads of attention: of queries, and of keys and values, which may be fewer (grouped-query attention).
struct Heads {
  int64_t q, kv;
  Heads(int64_t heads) : q(heads), kv(heads) {}  // attention_plain(qkv, 12, ...)
  Heads(int64_t q, int64_t kv) : q(q), kv(kv) {}
};
// D of packed q, k, v; an error if qkv is not (B,T,(H + 2 KV) D).
int64_t head_size(const char* op, const Tensor& qkv, Heads heads);
// Attention, qkv (B,T,(H + 2 KV) D) -> (B,T,H D), in two versions with the same result: attention_plain saves
// B H T T probabilities, attention_flash saves B H T log-sum-exps. If the query heads are sharded over ranks,
// first_head is the first one of this rank.
Tensor attention_plain(const Tensor& qkv, Heads heads, Mask mask, double dropout, int64_t first_head = 0);
Tensor attention_flash(const Tensor& qkv, Heads heads, Mask mask, double dropout, int64_t first_head = 0);
Tensor bias_gelu(const Tensor& x, const Tensor& bias);  // gelu(x + bias), after a linear without bias
Tensor concatenate(const std::vector<Tensor>& parts);   // along the last dimension
// (...,V), int32 (...) from -1 on, one number -> scalar
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& count = {});
// The backward of cross_entropy, for ops that save the same tensors: logits, targets, lse, count.
void cross_entropy_op_bwd(const Node&, const Tensor& dloss, Grads& dx);
// x (B, ...): B samples. If x is a part of each sample, first_element is the part's first element.
Tensor dropout(const Tensor& x, double p, int64_t first_element = 0);
Tensor embedding(const Tensor& table, const Tensor& ids);  // (V,C), int32 (...) -> (...,C)
Tensor gelu(const Tensor& x);                              // approximated by tanh, as in GPT-2
Tensor gelu_erf(const Tensor& x);                          // exact, as in BERT and GPT-NeoX
Tensor layernorm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps = 1e-5);
Tensor linear(const Tensor& x, const Tensor& weight,
              const Tensor& bias = {});  // x W^T + b, W (out,in), b (out)
// cross_entropy(linear(x, weight), targets, count), computing the logits of `rows` rows at a time
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets, const Tensor& count,
                            int64_t rows);
Tensor multiply(const Tensor& a, const Tensor& b);  // a * b, same shapes
// x / root mean square of x, times gamma
Tensor rmsnorm(const Tensor& x, const Tensor& gamma, double eps = 1e-5);
// Rotates the first `dims` dimensions of q and k of each head by the position. qkv (B,T,(H + 2 KV) D) -> the
// same shape; its first token is at position `first`.
Tensor rotary(const Tensor& qkv, Heads heads, int64_t dims, int64_t first = 0, double base = kRotaryBase);
Tensor scale(const Tensor& x, double factor);                 // factor * x
Tensor select_token(const Tensor& x, int64_t t);              // (B,T,C) -> (B,C): row t of each sample
Tensor slice(const Tensor& x, int64_t begin, int64_t count);  // columns of the last dimension
Tensor softmax(const Tensor& x);                              // over the last dimension
std::vector<Tensor> split(const Tensor& x,
                          const std::vector<int64_t>& counts);  // parts of the last dimension
Tensor swiglu(const Tensor& x);  // (...,2C), gate and value -> (...,C): silu(gate) * value
Tensor tanh(const Tensor& x);

// A mixture of experts. Each token of logits (B,T,E) chooses experts; each expert has `capacity` places per
// sequence. experts, weights, slots (B,T,chosen): the chosen experts in descending order of their weights,
// and the places that the token got. tokens (E,B,capacity): the token in each place.
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
