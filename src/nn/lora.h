// LoRA, low-rank adaptation (Hu et al. 2021, arXiv 2106.09685): of a trained model no weight changes, but
// some of its linear layers add alpha/r x A^T B^T, and only A (r, in) and B (out, r) train. And QLoRA
// (Dettmers et al. 2023, arXiv 2305.14314): the weights that do not train are kept in 4 bits.
#pragma once
#include <string>

#include "src/nn/transformer.h"

namespace gradus {

// What LoRA adds to a linear layer (sec. 4.1): alpha/r x A^T B^T, A (r, in), B (out, r).
struct LoraAdapter {
  Parameter &a, &b;
  double alpha, dropout;  // dropout: of x
  double scale() const { return alpha / double(a.value.shape()[0]); }
  Tensor operator()(const Tensor& x) const;
};
LoraAdapter* adapter_of(const Linear& layer);  // nullptr: it has none
void adapt(Linear& layer, const LoraAdapter& adapter);

// y = x W^T + b, of W in 4 bits; b may be undefined.
Tensor linear_quantized(const Tensor& x, const DoubleQuantized& weight, const Tensor& bias);

struct LoraArgs {
  int64_t r = 8;
  double alpha = 8, dropout = 0;
  Precision precision = {};  // of A and B; what they compute in is the model's
};

// Freezes every parameter of the model, and gives an adapter to each linear layer whose whole name, say
// "h.0.attn.c_attn", the pattern matches: a regular expression (ECMAScript), say ".*c_attn" or ".*". Its
// parameters are called NAME.lora_A.weight, uniform in +-1/sqrt(in) and drawn on the host, one stream a
// layer, and NAME.lora_B.weight, 0: so at first the model computes what it did before.
// Errors: a pattern that is none, or matches no layer (they are named); r below 1 or above a matrix's smaller
// side; a dropout that is no share; a model with adapters, or shared out among ranks; a layer of experts;
// another compute type than the model's. An error changes no weight and nothing that trains; gradients may be
// gone.
void add_lora(Transformer& model, const std::string& pattern, const LoraArgs& args, uint64_t seed);
void add_lora(Transformer& model, const std::vector<Linear*>& adapted, const LoraArgs& args, uint64_t seed);

// W <- W + alpha/r B A, of every layer with an adapter, which then takes no time; and back, up to rounding.
// A weight with something merged into it cannot train, is not saved or loaded, and does not go into 4 bits.
// Errors: there is none to merge, or back; weights in 4 bits. If a kernel fails on the way, some are merged.
void merge_lora(Transformer& model);
void unmerge_lora(Transformer& model);

// From now on the frozen weights of linear layers are kept in NF4 with double quantization
// (quant/double_quantized.h); the products make them numbers again, piece by piece. Biases, norms and
// embeddings stay. An error if none is frozen, or all are in 4 bits already, or an adapter is merged, or a
// weight is not finite or one of experts, or ranks share the model out: then nothing has changed.
void quantize_frozen(Transformer& model);

}  // namespace gradus
