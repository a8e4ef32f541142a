#include "lessons/published/hugging_face.h"

namespace gradus {

void HuggingFaceNeoX::buffer(const Shape& shape, DType dtype, Kind kind, const char* name) {
  buffers_.push_back(eager_.make(shape, dtype, kind, name));
}

// One workspace for the thread of the forward pass, one for the thread of the backward pass (each twice 4096
// KiB and eight times 16 KiB). Since version 2.0 they are tensors of PyTorch, and in the notebook they stay
// alive from one run to the next. (The notebook was restarted before LoRA: its figure for the loaded model
// does not include them.)
void HuggingFaceNeoX::make_workspaces() {
  for (int thread = 0; thread < 2; ++thread)
    buffer({8'519'680}, DType::U8, Kind::Workspace, "cuBLAS workspace");
}

EagerTensor HuggingFaceNeoX::weight(const Shape& shape, const std::string& name) {
  if (tuning_ == Tuning::All) return eager_.parameter(shape, name);
  const EagerTensor half = eager_.frozen(shape, DType::F16, name);
  return tuning_ == Tuning::QLora ? eager_.frozen(shape, DType::F32, name) : half;
}
EagerLinear HuggingFaceNeoX::norm(int64_t channels, const std::string& name) {
  const EagerTensor gain = weight({channels}, name + ".gain");
  return {gain, weight({channels}, name + ".bias")};
}
EagerLinear HuggingFaceNeoX::linear_weights(int64_t out, int64_t in, const std::string& name) {
  EagerLinear l;
  if (tuning_ != Tuning::QLora)
    l.weight = weight({out, in}, name + ".weight");
  else
    make_codes({out, in}, name);
  l.bias = weight({out}, name + ".bias");
  return l;
}

// A weight in 4 bits: its codes, the codes of its scales, their scales and their mean, and two codebooks.
void HuggingFaceNeoX::make_codes(const Shape& shape, const std::string& name) {
  const int64_t n = shape.numel(), blocks = n / 64;
  const Tensor half = eager_.make(shape, DType::F16, Kind::Temporary, name),
               scales = eager_.make({blocks}, DType::F32, Kind::Temporary, "absmax");
  buffer({n / 2}, DType::U8, Kind::Weight, "codes");
  buffer({16}, DType::F32, Kind::Other, "NF4 codebook");
  buffer({}, DType::F32, Kind::Weight, "mean of absmax");
  buffer({blocks}, DType::U8, Kind::Weight, "absmax codes");
  buffer({256}, DType::F32, Kind::Other, "dynamic codebook");
  buffer({(blocks + 255) / 256}, DType::F32, Kind::Weight, "absmax of absmax");
}

HuggingFaceNeoX::HuggingFaceNeoX(Device& device, const TransformerConfig& config, Tuning tuning)
    : eager_(device, tuning == Tuning::QLora ? DType::F32 : DType::F16, false),
      config_(config),
      tuning_(tuning) {
  const int64_t C = config.channels, T = config.context, R = config.rotary;
  if (tuning != Tuning::Lora) make_workspaces();
  embed_in_ = weight({config.vocab, C}, "embed_in");
  for (int64_t l = 0; l < config.layers; ++l) {
    Layer& layer = layers_.emplace_back();
    layer.norm_1 = norm(C, "norm_1");
    layer.norm_2 = norm(C, "norm_2");
    buffer({R / 2}, DType::F32, Kind::Other, "inv_freq");
    for (const char* name : {"cos", "sin"}) buffer({T, R}, DType::F32, Kind::Other, name);
    layer.qkv = linear_weights(3 * C, C, "qkv");
    layer.dense = linear_weights(C, C, "dense");
    buffer({T, T}, DType::U8, Kind::Other, "causal mask");
    buffer({}, DType::F16, Kind::Other, "masked_bias");
    layer.up = linear_weights(4 * C, C, "up");
    layer.down = linear_weights(C, 4 * C, "down");
  }
  norm_ = norm(C, "norm");
  embed_out_ = weight({config.vocab, C}, "embed_out");
  if (tuning == Tuning::All) return;
  constexpr int64_t kRank = 8;
  for (Layer& layer : layers_) {
    layer.a = eager_.parameter({kRank, C}, "lora_A");
    layer.b = eager_.parameter({3 * C, kRank}, "lora_B");
  }
}

// A weight in 4 bits is dequantized to fp16, and x is converted to fp16.
EagerTensor HuggingFaceNeoX::linear(const std::string& name, const EagerTensor& x, const EagerLinear& l) {
  if (l.weight.data.defined()) return eager_.linear(name, x, l);
  const int64_t out = l.bias.shape()[0];
  const Tensor dequantized = eager_.make({out, x.shape()[-1]}, DType::F16, Kind::Temporary, "dequantized");
  const EagerTensor half = eager_.map("fp16 copy", x, DType::F16);
  const EagerTensor y = eager_.op(name, x.shape().with_last(out), DType::F16, {Eager::fresh(half)});
  return eager_.map("fp32 copy", y, DType::F32);
}

// x W^T plus the output of the adapter.
EagerTensor HuggingFaceNeoX::project(const EagerTensor& x, const Layer& l) {
  const EagerTensor y = linear("qkv", x, l.qkv);
  if (tuning_ == Tuning::All) return y;
  const EagerTensor low = eager_.linear("lora_A", eager_.dropout("dropped x", x), {l.a, {}});
  const EagerTensor high = eager_.linear("lora_B", low, {l.b, {}});
  return eager_.add(y, eager_.map("scaled", high));
}

// q, k or v as a view; its gradient is as large as qkv and filled with zeros outside the view.
EagerTensor HuggingFaceNeoX::slice(const EagerTensor& qkv) {
  return eager_.view(qkv.data, {Eager::fresh(qkv)});
}

// x: q or k, a view of qkv (B,T,3C) -> (B H,T,D). The first R dimensions of a head are rotated. The tables of
// cosines and sines are in fp32, so the rotated dimensions are in fp32, and so is the concatenation with the
// rest.
EagerTensor HuggingFaceNeoX::rotate(const EagerTensor& x) {
  const int64_t B = x.shape()[0], T = x.shape()[1], H = config_.heads, D = config_.channels / H;
  const Shape turning = {B, H, T, config_.rotary};
  const auto turn = [&] {
    const EagerTensor by_cos = eager_.op("x cos", turning, DType::F32, {Eager::fresh(x)});
    const EagerTensor half = eager_.op("half turn of x", turning, x.data.dtype(), {Eager::fresh(x)});
    return eager_.add(by_cos, eager_.map("x sin", half, DType::F32));
  };
  const EagerTensor turned = turn();
  return eager_.op("q or k in fp32", {B * H, T, D}, DType::F32, {Eager::fresh(turned), Eager::fresh(x)});
}

// query, key (B H,T,D), value: a view of qkv (B,T,3C) -> (B H,T,D)
EagerTensor HuggingFaceNeoX::attend(const EagerTensor& query, const EagerTensor& key,
                                    const EagerTensor& value) {
  const Shape one = query.shape(), square = {one[0], one[1], one[1]};
  EagerTensor scores = {eager_.make(square, DType::F32, Kind::Temporary, "zeros")};  // the addend of baddbmm
  scores = eager_.matmul("scores", query, key, square);
  scores = eager_.map("masked scores", scores);
  EagerTensor probs = eager_.softmax("softmax", scores);
  probs = eager_.map("softmax as v", probs, value.data.dtype());
  return eager_.matmul("context", probs, eager_.copy("v by head", value, one), one);
}

EagerTensor HuggingFaceNeoX::attention(const EagerTensor& x, const Layer& l, std::vector<Tensor>& cache) {
  const EagerTensor qkv = project(x, l);
  const EagerTensor query = rotate(slice(qkv)), key = rotate(slice(qkv)), value = slice(qkv);
  cache.push_back(key.data);
  cache.push_back(value.data);  // a view, so all of qkv stays alive
  const EagerTensor context = attend(query, key, value);
  return linear("dense", eager_.copy("context", context, x.shape()), l.dense);
}

EagerTensor HuggingFaceNeoX::layer(const EagerTensor& x, const Layer& l, std::vector<Tensor>& cache) {
  const EagerTensor attended = attention(eager_.layer_norm(x, l.norm_1), l, cache);
  EagerTensor y = linear("h -> 4h", eager_.layer_norm(x, l.norm_2), l.up);
  y = eager_.gelu(y);
  y = linear("4h -> h", y, l.down);
  return eager_.add(eager_.add(y, attended), x);
}

HuggingFaceNeoX::Outputs HuggingFaceNeoX::forward(const Tensor& ids) {
  const int64_t B = ids.shape()[0], T = ids.shape()[1];
  Outputs out;
  EagerTensor x = eager_.embedding(embed_in_, ids);
  if (tuning_ == Tuning::QLora) {
    out.graph = {x.data};
    x = eager_.leaf(x);
  }
  if (checkpoints) {
    for (const Layer& l : layers_)
      x = eager_.checkpoint(x, [this, &l](const EagerTensor& h) {
        std::vector<Tensor> none;  // with checkpointing there is no cache
        return layer(h, l, none);
      });
  } else {
    for (const Layer& l : layers_) x = layer(x, l, out.cache);
  }
  x = eager_.layer_norm(x, norm_);
  const EagerTensor logits = eager_.linear("logits", x, {embed_out_, {}});
  const EagerTensor shifted = eager_.copy("shifted logits", logits, {B, T - 1, config_.vocab});
  out.logits = logits.data;
  out.loss = eager_.cross_entropy(shifted);
  return out;
}

void HuggingFaceNeoX::step(int64_t batch, int64_t tokens, int64_t micro_batches) {
  for (int64_t i = 0; i < micro_batches; ++i) {
    const Tensor ids = eager_.make({batch, tokens}, DType::I64, Kind::Data, "input_ids");
    const Tensor labels = eager_.make({batch, tokens}, DType::I64, Kind::Data, "labels");
    if (tuning_ == Tuning::Lora && outputs_.cache.empty()) make_workspaces();
    outputs_ = forward(ids);  // the old outputs are freed after the new ones are allocated
    eager_.backward(outputs_.loss);
  }
  if (tuning_ == Tuning::QLora) outputs_.graph.push_back(std::move(eager_.leaf_gradient));
  eager_.adamw_step();
}

}  // namespace gradus
