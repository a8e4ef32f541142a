#include "lessons/published/hugging_face.h"

namespace gradus {

HuggingFaceNeoX::HuggingFaceNeoX(Device& device, const TransformerConfig& config)
    : eager_(device, DType::F16, false), config_(config) {
  const int64_t C = config.channels, T = config.context, R = config.rotary;
  const auto buffer = [&](const Shape& shape, DType dtype, Kind kind, const char* name) {
    buffers_.push_back(eager_.make(shape, dtype, kind, name));
  };
  // One for the thread of the forward pass, one for that of the backward pass (4096 KiB twice and 16 KiB
  // eight times each); since 2.0 they are PyTorch's own tensors, and they stay from one run of the book to
  // the next.
  for (int thread = 0; thread < 2; ++thread) buffer({8'519'680}, DType::U8, Kind::Vendor, "cuBLAS workspace");
  embed_in_ = eager_.parameter({config.vocab, C}, "embed_in");
  for (int64_t l = 0; l < config.layers; ++l) {
    Layer& layer = layers_.emplace_back();
    layer.norm_1 = eager_.norm_parameters(C, "norm_1");
    layer.norm_2 = eager_.norm_parameters(C, "norm_2");
    buffer({R / 2}, DType::F32, Kind::Other, "inv_freq");
    for (const char* name : {"cos", "sin"}) buffer({T, R}, DType::F32, Kind::Other, name);
    layer.qkv = eager_.linear_parameters(3 * C, C, "qkv");
    layer.dense = eager_.linear_parameters(C, C, "dense");
    buffer({T, T}, DType::U8, Kind::Other, "causal mask");
    buffer({}, DType::F16, Kind::Other, "masked_bias");
    layer.up = eager_.linear_parameters(4 * C, C, "up");
    layer.down = eager_.linear_parameters(C, 4 * C, "down");
  }
  norm_ = eager_.norm_parameters(C, "norm");
  embed_out_ = eager_.parameter({config.vocab, C}, "embed_out");
}

// q, k or v, as a view; its gradient is as large as qkv, with zeros elsewhere.
EagerTensor HuggingFaceNeoX::slice(const EagerTensor& qkv) {
  return eager_.view(qkv.data, {Eager::fresh(qkv)});
}

// x: q or k, a view in qkv (B,T,3C) -> (B H,T,D). The first R dimensions of a head turn. The cosines and
// sines are fp32, so they become fp32, and with them the others.
EagerTensor HuggingFaceNeoX::rotate(const EagerTensor& x) {
  const int64_t B = x.shape()[0], T = x.shape()[1], H = config_.heads, D = config_.channels / H;
  const Shape turning = {B, H, T, config_.rotary};
  const auto turn = [&] {
    const EagerTensor by_cos = eager_.op("x cos", turning, DType::F32, {Eager::fresh(x)});
    const EagerTensor half = eager_.op("half turn of x", turning, DType::F16, {Eager::fresh(x)});
    return eager_.add(by_cos, eager_.map("x sin", half, DType::F32));
  };
  const EagerTensor turned = turn();
  return eager_.op("q or k in fp32", {B * H, T, D}, DType::F32, {Eager::fresh(turned), Eager::fresh(x)});
}

// query, key (B H,T,D), value: a view in qkv (B,T,3C) -> (B H,T,D)
EagerTensor HuggingFaceNeoX::attend(const EagerTensor& query, const EagerTensor& key,
                                    const EagerTensor& value) {
  const Shape one = query.shape(), square = {one[0], one[1], one[1]};
  EagerTensor scores = {eager_.make(square, DType::F32, Kind::Temporary, "zeros")};  // to be added to
  scores = eager_.matmul("scores", query, key, square);
  scores = eager_.map("masked scores", scores);
  EagerTensor probs = eager_.softmax("softmax", scores);
  probs = eager_.map("softmax in fp16", probs, DType::F16);
  return eager_.matmul("context", probs, eager_.copy("v by head", value, one), one);
}

EagerTensor HuggingFaceNeoX::attention(const EagerTensor& x, const Layer& l, std::vector<Tensor>& cache) {
  const EagerTensor qkv = eager_.linear("qkv", x, l.qkv);
  const EagerTensor query = rotate(slice(qkv)), key = rotate(slice(qkv)), value = slice(qkv);
  cache.push_back(key.data);
  cache.push_back(value.data);  // a view, so all of qkv stays
  const EagerTensor context = attend(query, key, value);
  return eager_.linear("dense", eager_.copy("context", context, x.shape()), l.dense);
}

EagerTensor HuggingFaceNeoX::layer(const EagerTensor& x, const Layer& l, std::vector<Tensor>& cache) {
  const EagerTensor attended = attention(eager_.layer_norm(x, l.norm_1), l, cache);
  EagerTensor y = eager_.linear("h -> 4h", eager_.layer_norm(x, l.norm_2), l.up);
  y = eager_.gelu(y);
  y = eager_.linear("4h -> h", y, l.down);
  return eager_.add(eager_.add(y, attended), x);
}

HuggingFaceNeoX::Outputs HuggingFaceNeoX::forward(const Tensor& ids) {
  const int64_t B = ids.shape()[0], T = ids.shape()[1];
  Outputs out;
  EagerTensor x = eager_.embedding(embed_in_, ids);
  for (const Layer& l : layers_) x = layer(x, l, out.cache);
  x = eager_.layer_norm(x, norm_);
  const EagerTensor logits = eager_.linear("logits", x, {embed_out_, {}});
  const EagerTensor shifted = eager_.copy("shifted logits", logits, {B, T - 1, config_.vocab});
  out.logits = logits.data;
  out.loss = eager_.cross_entropy(shifted);
  return out;
}

void HuggingFaceNeoX::step(int64_t batch, int64_t tokens) {
  const Tensor ids = eager_.make({batch, tokens}, DType::I64, Kind::Data, "input_ids");
  const Tensor labels = eager_.make({batch, tokens}, DType::I64, Kind::Data, "labels");
  outputs_ = forward(ids);  // the old ones go when the new ones are there
  eager_.backward(outputs_.loss);
  eager_.adamw_step();
}

}  // namespace gradus
