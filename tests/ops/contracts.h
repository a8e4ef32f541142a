// For each op: the tensors that it saves for backward, and the costs of its kernels.
#pragma once
#include <bit>

#include "tests/ops/ops_testing.h"

namespace gradus {

using Costs = std::vector<Cost>;
struct Contract {
  const char* name;  // of an op in ops_testing.h
  // The saved tensors if the inputs in `training` train; each input has a bit, and the names "0", "1", "2".
  std::string (*saves)(unsigned training);
  Costs (*forward)(DType T);
  Costs (*backward)(DType T, unsigned training);
};
inline std::ostream& operator<<(std::ostream& out, const Contract& c) { return out << c.name; }
inline const Op& op_of(std::string_view name) {
  return *std::find_if(kOps.begin(), kOps.end(), [&](const Op& op) { return op.name == name; });
}

constexpr AttentionShape heads(Mask mask, int64_t H = 2, int64_t KV = 2) {
  return {.B = 2, .H = H, .KV = KV, .T = 3, .D = 2, .qkv = {}, .y = {}, .scale = 1, .mask = mask};
}
constexpr RotaryShape kTurned{.B = 2, .T = 3, .H = 2, .KV = 2, .D = 4, .dims = 4};
constexpr RotaryShape kTurnedGroups{.B = 2, .T = 3, .H = 4, .KV = 2, .D = 4, .dims = 2};

inline MatmulShape product(int64_t M, int64_t N, int64_t K) {
  return {.M = M, .N = N, .K = K, .lda = K, .ldb = N, .ldc = N};
}
constexpr ExpertShape kRouted{.B = 2, .T = 3, .E = 3, .chosen = 2, .capacity = 2};
inline MatmulShape of_experts(MatmulShape s) {
  s.batch[0].count = 3;
  return s;
}
// The costs of copying columns for each part that trains, 4 rows each.
inline Costs columns_of_parts(DType T, unsigned training) {
  Costs costs;
  for (const int64_t cols : {3, 1, 2}) {
    if (training & 1) costs.push_back(cost::cast(4 * cols, T, T));
    training >>= 1;
  }
  return costs;
}
inline std::string nothing(unsigned) { return ""; }
inline std::string input(unsigned) { return "0 "; }
inline const std::vector<Contract> kContracts{
    {"add", nothing, [](DType T) { return Costs{cost::add(12, T)}; },
     [](DType T, unsigned training) { return Costs(size_t(std::popcount(training)), cost::cast(12, T, T)); }},
    {"add_layernorm",
     [](unsigned training) -> std::string { return training & 7 ? "add 2 layernorm.stats " : ""; },
     [](DType T) {
       return Costs{cost::add_layernorm_fwd({4, 5}, T)};
     },
     [](DType T, unsigned training) {
       Costs costs{training & 7 ? cost::add_layernorm_bwd({4, 5}, T) : cost::bias_bwd({4, 5}, T)};
       for (const unsigned bit : {1u, 2u})
         if (training & bit) costs.push_back(cost::cast(20, T, T));  // to a parameter
       return costs;
     }},
    {"bias_gelu", [](unsigned) -> std::string { return "0 1 "; },
     [](DType T) {
       return Costs{cost::bias_gelu_fwd({3, 4}, T)};
     },
     [](DType T, unsigned) {
       return Costs{cost::bias_gelu_bwd({3, 4}, T)};
     }},
    {"add_positions", nothing,
     [](DType T) {
       return Costs{cost::bias_fwd({2, 15}, T)};
     },
     [](DType T, unsigned training) {
       Costs costs;
       if (training & 1) costs.push_back(cost::cast(30, T, T));
       if (training & 2) costs.insert(costs.end(), {cost::bias_bwd({2, 15}, T), cost::fill(5, T)});
       return costs;
     }},
    {"attention_plain", [](unsigned) -> std::string { return "0 attention.probs "; },
     [](DType T) { return Costs{cost::attention_plain_fwd(heads(Mask::Causal), T)}; },
     [](DType T, unsigned) { return Costs{cost::attention_plain_bwd(heads(Mask::Causal), T)}; }},
    {"attention_plain_dropped", [](unsigned) -> std::string { return "0 attention.probs "; },
     [](DType T) { return Costs{cost::attention_plain_fwd(heads(Mask::None), T)}; },
     [](DType T, unsigned) { return Costs{cost::attention_plain_bwd(heads(Mask::None), T)}; }},
    {"attention_flash", [](unsigned) -> std::string { return "0 attention attention.lse "; },
     [](DType T) { return Costs{cost::attention_flash_fwd(heads(Mask::Causal), T)}; },
     [](DType T, unsigned) { return Costs{cost::attention_flash_bwd(heads(Mask::Causal), T)}; }},
    {"attention_flash_dropped", [](unsigned) -> std::string { return "0 attention attention.lse "; },
     [](DType T) { return Costs{cost::attention_flash_fwd(heads(Mask::None), T)}; },
     [](DType T, unsigned) { return Costs{cost::attention_flash_bwd(heads(Mask::None), T)}; }},
    {"attention_plain_grouped", [](unsigned) -> std::string { return "0 attention.probs "; },
     [](DType T) { return Costs{cost::attention_plain_fwd(heads(Mask::Causal, 6, 2), T)}; },
     [](DType T, unsigned) { return Costs{cost::attention_plain_bwd(heads(Mask::Causal, 6, 2), T)}; }},
    {"attention_plain_dropped_grouped", [](unsigned) -> std::string { return "0 attention.probs "; },
     [](DType T) { return Costs{cost::attention_plain_fwd(heads(Mask::None, 4, 1), T)}; },
     [](DType T, unsigned) { return Costs{cost::attention_plain_bwd(heads(Mask::None, 4, 1), T)}; }},
    {"attention_flash_grouped", [](unsigned) -> std::string { return "0 attention attention.lse "; },
     [](DType T) { return Costs{cost::attention_flash_fwd(heads(Mask::Causal, 6, 2), T)}; },
     [](DType T, unsigned) { return Costs{cost::attention_flash_bwd(heads(Mask::Causal, 6, 2), T)}; }},
    {"attention_flash_dropped_grouped", [](unsigned) -> std::string { return "0 attention attention.lse "; },
     [](DType T) { return Costs{cost::attention_flash_fwd(heads(Mask::None, 4, 1), T)}; },
     [](DType T, unsigned) { return Costs{cost::attention_flash_bwd(heads(Mask::None, 4, 1), T)}; }},
    {"balance_loss", [](unsigned) -> std::string { return "0 ids "; },
     [](DType T) { return Costs{cost::balance_loss_fwd(kRouted, T)}; },
     [](DType T, unsigned) { return Costs{cost::balance_loss_bwd(kRouted, T)}; }},
    {"choose_experts", [](unsigned) -> std::string { return "experts experts.weights "; },
     [](DType T) {
       return Costs{cost::choose_experts_fwd({2, 3, 4, 2, 2}, T), cost::place_tokens({2, 3, 4, 2, 2})};
     },
     [](DType T, unsigned) {
       return Costs{cost::choose_experts_bwd({2, 3, 4, 2, 2}, T)};
     }},
    {"combine_experts",
     [](unsigned training) {
       return std::string(training & 2 ? "0 " : "") + "ids " + (training & 1 ? "ids 1 " : "");
     },
     [](DType T) { return Costs{cost::combine_experts_fwd(kRouted, 5, T)}; },
     [](DType T, unsigned) { return Costs{cost::combine_experts_bwd(kRouted, 5, T)}; }},
    {"cross_entropy", [](unsigned) -> std::string { return "0 ids cross_entropy.lse "; },
     [](DType T) {
       return Costs{cost::cross_entropy_fwd({4, 5}, T)};
     },
     [](DType T, unsigned) {  // the test refers to the logits, so backward overwrites a copy
       return Costs{cost::cast(20, T, T), cost::cross_entropy_bwd_inplace({4, 5}, T), cost::cast(20, T, T)};
     }},
    {"dispatch", [](unsigned) -> std::string { return "ids "; },
     [](DType T) {
       return Costs{cost::embedding_fwd({12, 5}, T)};
     },
     [](DType T, unsigned) { return Costs{cost::combine_experts_fwd(kRouted, 5, T)}; }},
    {"dropout", nothing,
     [](DType T) {
       return Costs{cost::dropout({3, 10}, T)};
     },
     [](DType T, unsigned) {
       return Costs{cost::dropout({3, 10}, T)};
     }},
    {"embedding", [](unsigned) -> std::string { return "ids "; },
     [](DType T) {
       return Costs{cost::embedding_fwd({4, 3}, T)};
     },
     [](DType T, unsigned) {
       return Costs{cost::embedding_bwd({4, 3}, T)};
     }},
    {"expert_linear",
     [](unsigned training) { return std::string(training & 2 ? "0 " : "") + (training & 1 ? "1 " : ""); },
     [](DType T) { return Costs{cost::matmul(of_experts(product(4, 5, 4)), T)}; },
     [](DType T, unsigned training) {
       Costs costs;
       if (training & 1) costs.push_back(cost::matmul(of_experts(product(4, 4, 5)), T));
       if (training & 2) costs.push_back(cost::matmul(of_experts(product(5, 4, 4)), T));
       return costs;
     }},
    {"concatenate", nothing, [](DType T) { return columns_of_parts(T, 7); }, columns_of_parts},
    {"multiply",
     [](unsigned training) { return std::string(training & 2 ? "0 " : "") + (training & 1 ? "1 " : ""); },
     [](DType T) { return Costs{cost::multiply(12, T)}; },
     [](DType T, unsigned training) {
       return Costs(size_t(std::popcount(training)), cost::multiply(12, T));
     }},
    {"slice", nothing, [](DType T) { return Costs{cost::cast(12, T, T)}; },
     [](DType T, unsigned) {
       return Costs{cost::fill(24, T), cost::cast(12, T, T)};
     }},
    {"split", nothing,
     [](DType T) {
       return Costs{cost::cast(4, T, T), cost::cast(12, T, T), cost::cast(8, T, T)};
     },
     [](DType T, unsigned) {
       return Costs{cost::fill(24, T), cost::cast(12, T, T)};
     }},
    {"gelu", input, [](DType T) { return Costs{cost::gelu_fwd(14, T)}; },
     [](DType T, unsigned) { return Costs{cost::gelu_bwd(14, T)}; }},
    {"gelu_erf", input, [](DType T) { return Costs{cost::gelu_erf_fwd(14, T)}; },
     [](DType T, unsigned) { return Costs{cost::gelu_erf_bwd(14, T)}; }},
    {"layernorm", [](unsigned training) -> std::string { return training & 3 ? "0 1 layernorm.stats " : ""; },
     [](DType T) {
       return Costs{cost::layernorm_fwd({4, 5}, T)};
     },
     [](DType T, unsigned training) {
       return Costs{training & 3 ? cost::layernorm_bwd({4, 5}, T) : cost::bias_bwd({4, 5}, T)};
     }},
    {"linear",
     [](unsigned training) { return std::string(training & 2 ? "0 " : "") + (training & 1 ? "1 " : ""); },
     [](DType T) {
       return Costs{cost::bias_fwd({4, 6}, T), cost::matmul(product(4, 6, 3), T)};
     },
     [](DType T, unsigned training) {
       Costs costs;
       if (training & 1) costs.push_back(cost::matmul(product(4, 3, 6), T));
       if (training & 2) costs.push_back(cost::matmul(product(6, 3, 4), T));
       if (training & 4) costs.push_back(cost::bias_bwd({4, 6}, T));
       return costs;
     }},
    {"rmsnorm", [](unsigned) -> std::string { return "0 1 rmsnorm.stats "; },
     [](DType T) {
       return Costs{cost::rmsnorm_fwd({4, 5}, T)};
     },
     [](DType T, unsigned) {
       return Costs{cost::rmsnorm_bwd({4, 5}, T)};
     }},
    {"rotary", nothing, [](DType T) { return Costs{cost::rotary(kTurned, T)}; },
     [](DType T, unsigned) { return Costs{cost::rotary(kTurned, T)}; }},
    {"rotary_grouped", nothing, [](DType T) { return Costs{cost::rotary(kTurnedGroups, T)}; },
     [](DType T, unsigned) { return Costs{cost::rotary(kTurnedGroups, T)}; }},
    {"scale", nothing, [](DType T) { return Costs{cost::scale(14, T)}; },
     [](DType T, unsigned) { return Costs{cost::scale(14, T)}; }},
    {"softmax", [](unsigned) -> std::string { return "softmax "; },
     [](DType T) {
       return Costs{cost::softmax_fwd({3, 5}, T)};
     },
     [](DType T, unsigned) {
       return Costs{cost::softmax_bwd({3, 5}, T)};
     }},
    {"swiglu", input,
     [](DType T) {
       return Costs{cost::swiglu_fwd({6, 5}, T)};
     },
     [](DType T, unsigned) {
       return Costs{cost::swiglu_bwd({6, 5}, T)};
     }},
    {"tanh", [](unsigned) -> std::string { return "tanh "; },
     [](DType T) { return Costs{cost::tanh_fwd(14, T)}; },
     [](DType T, unsigned) { return Costs{cost::tanh_bwd(14, T)}; }},
};

}  // namespace gradus
