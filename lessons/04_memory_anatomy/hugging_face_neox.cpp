#include "lessons/04_memory_anatomy/hugging_face.h"

namespace gradus {

HuggingFaceNeoX::Linear HuggingFaceNeoX::linear(int64_t out, int64_t in) {
  const EagerTensor weight = eager_.parameter({out, in}, DType::F16, "weight");
  return {weight, eager_.parameter({out}, DType::F16, "bias")};
}
HuggingFaceNeoX::Linear HuggingFaceNeoX::norm() {
  const EagerTensor gain = eager_.parameter({config_.channels}, DType::F16, "gain");
  return {gain, eager_.parameter({config_.channels}, DType::F16, "bias")};
}

HuggingFaceNeoX::HuggingFaceNeoX(Device& device, const TransformerConfig& config)
    : eager_(device, false), config_(config) {
  const int64_t C = config.channels, T = config.context, R = config.rotary;
  const auto buffer = [&](const Shape& shape, DType dtype, const char* name) {
    buffers_.push_back(eager_.make(shape, dtype, Kind::Other, name));
  };
  // cuBLAS's workspaces, one for the thread of the forward pass and one for that of the backward pass; since 2.0
  // PyTorch allocates them itself.
  for (int thread = 0; thread < 2; ++thread)
    buffers_.push_back(eager_.make({8'519'680}, DType::U8, Kind::Vendor, "cuBLAS workspace"));
  words_ = eager_.parameter({config.vocab, C}, DType::F16, "embed_in");
  for (int64_t l = 0; l < config.layers; ++l) {
    Layer& layer = layers_.emplace_back();
    layer.norm_1 = norm();
    layer.norm_2 = norm();
    buffer({R / 2}, DType::F32, "inv_freq");
    for (const char* name : {"cos", "sin"}) buffer({T, R}, DType::F32, name);
    layer.qkv = linear(3 * C, C);
    layer.dense = linear(C, C);
    buffer({T, T}, DType::U8, "causal mask");
    buffer({}, DType::F16, "masked_bias");
    layer.up = linear(4 * C, C);
    layer.down = linear(C, 4 * C);
  }
  norm_ = norm();
  head_ = eager_.parameter({config.vocab, C}, DType::F16, "embed_out");
}

EagerTensor HuggingFaceNeoX::apply(const char* name, const EagerTensor& x, const Linear& l) {
  return eager_.linear(name, x, l.weight, l.bias);
}
EagerTensor HuggingFaceNeoX::normalize(const EagerTensor& x, const Linear& l) {
  return eager_.layer_norm(x, l.weight, l.bias);
}

// A part of qkv, as a view: its gradient is as large as all of qkv, with zeros elsewhere.
EagerTensor HuggingFaceNeoX::slice(const EagerTensor& qkv) {
  return eager_.op("slice", qkv.shape(), DType::F16, {Eager::fresh(qkv)}, {}, qkv.data);
}

// x (B,T,3C) is a view of q or k in qkv -> (B H,T,D) in fp32, for cosines and sines are fp32: the first R of a
// head's dimensions turn, the others are converted.
EagerTensor HuggingFaceNeoX::rotate(const EagerTensor& x) {
  const int64_t B = x.shape()[0], T = x.shape()[1], H = config_.heads, D = config_.channels / H,
                R = config_.rotary;
  const Shape turning = {B, H, T, R};
  const auto from_x = [&](const char* name, const EagerTensor& y, DType dtype) {
    return eager_.op(name, turning, dtype, {Eager::fresh(y)});
  };
  const EagerTensor turned = [&] {
    const EagerTensor by_cos = from_x("x cos", x, DType::F32);
    const EagerTensor half = from_x("rotate_half", x, DType::F16), by_sin = eager_.map("x sin", half, DType::F32);
    return eager_.add(by_cos, by_sin);
  }();
  return eager_.op("q or k in fp32", {B * H, T, D}, DType::F32, {Eager::fresh(turned), Eager::fresh(x)});
}

EagerTensor HuggingFaceNeoX::attention(const EagerTensor& x, const Layer& l, std::vector<Tensor>& cache) {
  const int64_t B = x.shape()[0], T = x.shape()[1], H = config_.heads, D = config_.channels / H;
  const EagerTensor qkv = apply("qkv", x, l.qkv);
  const EagerTensor query = rotate(slice(qkv)), key = rotate(slice(qkv)), value = slice(qkv);
  cache.push_back(key.data);
  cache.push_back(value.data);  // a view: all of qkv stays
  const EagerTensor context = [&] {
    const Shape square = {B * H, T, T};
    EagerTensor scores = {eager_.make(square, DType::F32, Kind::Temporary, "zeros"), 0};
    scores = eager_.matmul("scores", query, key, square);
    scores = eager_.map("masked scores", scores);
    const EagerTensor probs = eager_.map("softmax in fp16", eager_.softmax("softmax", scores), DType::F16);
    return eager_.matmul("context", probs, eager_.copy("v by head", value, {B * H, T, D}), {B * H, T, D});
  }();
  return apply("dense", eager_.copy("context", context, {B, T, H * D}), l.dense);
}

EagerTensor HuggingFaceNeoX::layer(const EagerTensor& x, const Layer& l, std::vector<Tensor>& cache) {
  const EagerTensor attended = attention(normalize(x, l.norm_1), l, cache);
  EagerTensor inner = apply("h -> 4h", normalize(x, l.norm_2), l.up);
  inner = eager_.gelu(inner);
  inner = apply("4h -> h", inner, l.down);
  return eager_.add(eager_.add(inner, attended), x);
}

HuggingFaceNeoX::Outputs HuggingFaceNeoX::forward(const Tensor& ids) {
  const int64_t B = ids.shape()[0], T = ids.shape()[1], V = config_.vocab;
  Outputs out;
  EagerTensor x = eager_.embedding(words_, ids);
  for (const Layer& l : layers_) x = layer(x, l, out.cache);
  x = normalize(x, norm_);
  const EagerTensor logits = eager_.linear("logits", x, head_, {});
  const EagerTensor shifted = eager_.copy("shifted logits", logits, {B, T - 1, V});
  out.logits = logits.data;
  out.loss = eager_.cross_entropy(shifted);
  return out;
}

void HuggingFaceNeoX::step(int64_t batch, int64_t tokens) {
  const Tensor ids = eager_.make({batch, tokens}, DType::I64, Kind::Data, "input_ids");
  const Tensor labels = eager_.make({batch, tokens}, DType::I64, Kind::Data, "labels");
  outputs_ = forward(ids);  // the old outputs go when the new ones are there
  eager_.backward(outputs_.loss);
  eager_.adamw_step(false);
}

}  // namespace gradus
