// LoRA, low-rank adaptation (Hu et al. 2021, arXiv 2106.09685): the weights of a trained model are frozen;
// some of its linear layers add alpha/r x A^T B^T, and only A (r, in) and B (out, r) train. QLoRA (Dettmers
// et al. 2023, arXiv 2305.14314) also stores the frozen weights in 4 bits.
#pragma once
#include <string>

#include "src/nn/transformer.h"

namespace gradus {

// What LoRA adds to a linear layer (sec. 4.1): alpha/r x A^T B^T, A (r, in), B (out, r).
struct LoraAdapter {
  Parameter &a, &b;
  double alpha, dropout;  // dropout is applied to x
  double scale() const { return alpha / double(a.value.shape()[0]); }
  Tensor operator()(const Tensor& x) const;
};
LoraAdapter* adapter_of(const Linear& layer);  // nullptr: the layer has none
void adapt(Linear& layer, const LoraAdapter& adapter);

// y = x W^T + b with W in 4 bits; b may be undefined.
Tensor linear_quantized(const Tensor& x, const DoubleQuantized& weight, const Tensor& bias);

struct LoraArgs {
  int64_t r = 8;
  double alpha = 8, dropout = 0;
  Precision precision = {};  // of A and B; `value` must be that of the model
};

// Freezes every parameter of the model, and gives an adapter to each linear layer whose whole name (for
// example "h.0.attn.c_attn") matches the pattern, a regular expression (ECMAScript) such as ".*c_attn" or
// ".*". The adapter's parameters are NAME.lora_A.weight, uniform in +-1/sqrt(in) and drawn on the host with
// one stream per layer, and NAME.lora_B.weight, which is 0: so at first the model's output does not change.
// Errors: a pattern that is not a regular expression, or matches no layer (the error lists the layers); r
// below 1 or above the smaller side of a matrix; a dropout outside [0, 1); a model that has adapters or is
// sharded over ranks; a layer of experts; a compute dtype that is not the model's. An error changes neither a
// weight nor which parameters train; gradients may be lost.
void add_lora(Transformer& model, const std::string& pattern, const LoraArgs& args, uint64_t seed);
void add_lora(Transformer& model, const std::vector<Linear*>& adapted, const LoraArgs& args, uint64_t seed);

// merge_lora: W <- W + alpha/r B A in every layer with an adapter, which then takes no time. unmerge_lora
// subtracts it again, up to rounding. A merged weight cannot train, be saved or loaded, or be stored in 4
// bits. Errors: no adapter to merge or unmerge; weights in 4 bits. If a kernel fails, some weights are merged
// and others not.
void merge_lora(Transformer& model);
void unmerge_lora(Transformer& model);

// Stores the frozen weights of linear layers in NF4 with double quantization (quant/double_quantized.h); the
// products then dequantize them tile by tile. Biases, norms and embeddings do not change. Errors, which
// change nothing: no weight is frozen, or all are in 4 bits already; an adapter is merged; a weight is not
// finite, or belongs to experts; the model is sharded over ranks.
void quantize_frozen(Transformer& model);

}  // namespace gradus
