// Every op, as a function of the inputs that can train.
#pragma once
#include <functional>

#include "src/ops/ops.h"
#include "tests/tape_testing.h"

namespace gradus {

using In = const std::vector<Tensor>&;
struct Op {
  const char* name;
  std::vector<Shape> shapes;  // of the inputs that can train
  Tensor (*f)(In);
  unsigned weights = 0;  // parameters: with activations in 16 bits, their gradients may be fp32
};
inline std::ostream& operator<<(std::ostream& out, const Op& op) { return out << op.name; }

// Draws the same mask in each call, so that finite differences evaluate the same function as the tape.
inline Tensor with_first_mask(const std::function<Tensor()>& f) {
  current().dropout_ordinal() = 0;
  return f();
}

// Two sequences of 3 tokens; each token chooses 2 of 3 experts with 2 places each. One choice per sequence is
// dropped, and two places stay empty.
inline Routing some_routing(const Tensor& weights = {}) {
  constexpr int32_t x = kElsewhere;
  return {{2, 3, 3, 2, 2},
          ids_of({0, 1, 0, 2, 0, 1, 2, 0, 1, 2, 2, 1}, {2, 3, 2}),
          weights,
          ids_of({0, 4, 1, 8, x, 5, 10, 2, 6, 11, x, 7}, {2, 3, 2}),
          ids_of({0, 1, 3, x, 0, 2, 4, 5, 1, x, 3, 4}, {3, 2, 2})};
}

inline const std::vector<Op> kOps{
    {"add", {{3, 4}, {3, 4}}, [](In x) { return add(x[0], x[1]); }},
    {"add_layernorm",
     {{4, 5}, {4, 5}, {5}, {5}},
     [](In x) { return add_layernorm(x[0], x[1], x[2], x[3])[1]; },
     12},
    {"add_positions", {{2, 3, 5}, {4, 5}}, [](In x) { return add_positions(x[0], x[1]); }, 2},
    {"attention_plain", {{2, 3, 12}}, [](In x) { return attention_plain(x[0], 2, Mask::Causal, 0); }},
    {"attention_flash", {{2, 3, 12}}, [](In x) { return attention_flash(x[0], 2, Mask::Causal, 0); }},
    {"attention_plain_dropped",
     {{2, 3, 12}},
     [](In x) { return with_first_mask([&] { return attention_plain(x[0], 2, Mask::None, 0.4); }); }},
    {"attention_flash_dropped",
     {{2, 3, 12}},
     [](In x) { return with_first_mask([&] { return attention_flash(x[0], 2, Mask::None, 0.4); }); }},
    {"attention_plain_grouped",
     {{2, 3, 20}},
     [](In x) {
       return attention_plain(x[0], {6, 2}, Mask::Causal, 0);
     }},
    {"attention_flash_grouped",
     {{2, 3, 20}},
     [](In x) {
       return attention_flash(x[0], {6, 2}, Mask::Causal, 0);
     }},
    {"attention_plain_dropped_grouped",
     {{2, 3, 12}},
     [](In x) { return with_first_mask([&] {
                  return attention_plain(x[0], {4, 1}, Mask::None, 0.4);
                }); }},
    {"attention_flash_dropped_grouped",
     {{2, 3, 12}},
     [](In x) { return with_first_mask([&] {
                  return attention_flash(x[0], {4, 1}, Mask::None, 0.4);
                }); }},
    {"bias_gelu", {{3, 4}, {4}}, [](In x) { return bias_gelu(x[0], x[1]); }, 2},
    {"balance_loss", {{2, 3, 3}}, [](In x) { return balance_loss(x[0], some_routing(), 0.7); }},
    {"choose_experts", {{2, 3, 4}}, [](In x) { return choose_experts(x[0], 2, 2).weights; }},
    {"combine_experts",
     {{3, 2, 2, 5}, {2, 3, 2}},
     [](In x) { return combine_experts(x[0], some_routing(x[1])); }},
    {"cross_entropy",
     {{4, 5}},
     [](In x) {
       return cross_entropy(x[0], ids_of({0, 4, 2, 2}, {4}));
     }},
    {"linear_cross_entropy",
     {{2, 2, 3}, {5, 3}},
     [](In x) {
       return linear_cross_entropy(x[0], x[1], ids_of({0, 4, -1, 2}, {2, 2}), {}, 3);
     },
     2},
    {"dispatch", {{2, 3, 5}}, [](In x) { return dispatch(x[0], some_routing()); }},
    {"dropout", {{3, 2, 5}}, [](In x) { return with_first_mask([&] { return dropout(x[0], 0.3); }); }},
    {"embedding",
     {{5, 3}},
     [](In x) {
       return embedding(x[0], ids_of({2, 0, 2, 4}, {2, 2}));
     },
     1},
    {"expert_linear", {{3, 2, 2, 4}, {3, 5, 4}}, [](In x) { return expert_linear(x[0], x[1]); }, 2},
    {"concatenate",
     {{2, 2, 3}, {2, 2, 1}, {2, 2, 2}},
     [](In x) {
       return concatenate({x[0], x[1], x[2]});
     }},
    {"multiply", {{3, 4}, {3, 4}}, [](In x) { return multiply(x[0], x[1]); }},
    {"slice", {{3, 2, 4}}, [](In x) { return slice(x[0], 1, 2); }},
    {"slice_of_tokens", {{3, 2, 4}}, [](In x) { return select_token(x[0], 1); }},
    {"split",
     {{2, 2, 6}},
     [](In x) {
       return split(x[0], {1, 3, 2})[1];
     }},
    {"gelu", {{2, 7}}, [](In x) { return gelu(x[0]); }},
    {"gelu_erf", {{2, 7}}, [](In x) { return gelu_erf(x[0]); }},
    {"layernorm", {{4, 5}, {5}, {5}}, [](In x) { return layernorm(x[0], x[1], x[2]); }, 6},
    {"linear", {{2, 2, 3}, {6, 3}, {6}}, [](In x) { return linear(x[0], x[1], x[2]); }, 6},
    {"linear_without_bias", {{4, 3}, {6, 3}}, [](In x) { return linear(x[0], x[1]); }, 2},
    {"rmsnorm", {{4, 5}, {5}}, [](In x) { return rmsnorm(x[0], x[1]); }, 2},
    {"rotary", {{2, 3, 24}}, [](In x) { return rotary(x[0], 2, 4); }},
    {"rotary_from_3", {{2, 3, 24}}, [](In x) { return rotary(x[0], 2, 4, 3); }},
    {"rotary_grouped",
     {{2, 3, 32}},
     [](In x) {
       return rotary(x[0], {4, 2}, 2, 1, 7.5);
     }},
    {"scale", {{2, 7}}, [](In x) { return scale(x[0], -2.5); }},
    {"softmax", {{3, 5}}, [](In x) { return softmax(x[0]); }},
    {"swiglu", {{2, 3, 10}}, [](In x) { return swiglu(x[0]); }},
    {"tanh", {{2, 7}}, [](In x) { return tanh(x[0]); }},
};

}  // namespace gradus
