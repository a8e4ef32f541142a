#include "lessons/04_memory_anatomy/hugging_face.h"

namespace gradus {

HuggingFaceBert::Linear HuggingFaceBert::linear(int64_t out, int64_t in) {
  const EagerTensor weight = eager_.parameter({out, in}, DType::F32, "weight");
  return {weight, eager_.parameter({out}, DType::F32, "bias")};
}
HuggingFaceBert::Linear HuggingFaceBert::norm() {
  const EagerTensor gain = eager_.parameter({config_.channels}, DType::F32, "gain");
  return {gain, eager_.parameter({config_.channels}, DType::F32, "bias")};
}

HuggingFaceBert::HuggingFaceBert(Device& device, const TransformerConfig& config)
    : eager_(device, true), config_(config) {
  const int64_t C = config.channels;
  first_tensor_ = eager_.make({1, 1}, DType::F32, Kind::Other, "torch.ones((1, 1))");
  words_ = eager_.parameter({config.vocab, C}, DType::F32, "words");
  places_ = eager_.parameter({config.context, C}, DType::F32, "positions");
  types_ = eager_.parameter({config.token_types, C}, DType::F32, "types");
  norm_ = norm();
  positions_ = eager_.make({1, config.context}, DType::I64, Kind::Other, "position_ids");
  for (int64_t l = 0; l < config.layers; ++l) {
    Layer& layer = layers_.emplace_back();
    for (Linear* x : {&layer.query, &layer.key, &layer.value, &layer.output}) *x = linear(C, C);
    layer.norm_1 = norm();
    layer.up = linear(4 * C, C);
    layer.down = linear(C, 4 * C);
    layer.norm_2 = norm();
  }
  pooler_ = linear(C, C);
  classifier_ = linear(config.labels, C);
}

EagerTensor HuggingFaceBert::apply(const char* name, const EagerTensor& x, const Linear& l) {
  return eager_.linear(name, x, l.weight, l.bias);
}
EagerTensor HuggingFaceBert::normalize(const EagerTensor& x, const Linear& l) {
  return eager_.layer_norm(x, l.weight, l.bias);
}

EagerTensor HuggingFaceBert::embed(int64_t batch, int64_t tokens) {
  const Tensor ids = eager_.make({batch, tokens}, DType::I64, Kind::Data, "input_ids");
  const Tensor types = eager_.make({batch, tokens}, DType::I64, Kind::Data, "token_type_ids");
  const EagerTensor words = eager_.embedding(words_, ids), kinds = eager_.embedding(types_, types);
  const EagerTensor sum = eager_.add(words, kinds);
  const EagerTensor places = eager_.embedding(places_, positions_);
  // embeddings += position_embeddings: in place; its gradient is summed over the batch.
  const EagerTensor all = eager_.op("add_", sum.shape(), DType::F32, {Eager::passed(sum), Eager::fresh(places)}, {},
                                    sum.data);
  const EagerTensor y = normalize(all, norm_);
  return eager_.dropout("dropout", y);
}

EagerTensor HuggingFaceBert::attention(const EagerTensor& x, const Layer& l) {
  const int64_t B = x.shape()[0], T = x.shape()[1], H = config_.heads, D = config_.channels / H;
  const EagerTensor query = apply("query", x, l.query), key = apply("key", x, l.key),
                    value = apply("value", x, l.value);  // all three live until the end
  // matmul wants its inputs contiguous, head by head.
  const auto heads = [&](const EagerTensor& y) { return eager_.copy("q, k, v by head", y, {B * H, T, D}); };
  EagerTensor scores = [&] {
    const EagerTensor q = heads(query), k = heads(key);
    return eager_.matmul("scores", q, k, {B * H, T, T});
  }();
  scores = eager_.map("scores", scores);  // divided by sqrt(D)
  scores = eager_.op("scores", scores.shape(), DType::F32, {Eager::passed(scores)});  // plus the mask
  EagerTensor probs = eager_.softmax("softmax", scores);
  probs = eager_.dropout("dropped softmax", probs);
  const EagerTensor context = [&] {
    const EagerTensor v = heads(value);
    return eager_.matmul("context", probs, v, {B * H, T, D});
  }();
  return eager_.copy("context", context, {B, T, H * D});
}

EagerTensor HuggingFaceBert::layer(const EagerTensor& x, const Layer& l) {
  const EagerTensor context = attention(x, l);
  const EagerTensor h = [&] {
    EagerTensor y = apply("dense", context, l.output);
    y = eager_.dropout("dropout", y);
    return normalize(eager_.add(y, x), l.norm_1);
  }();
  const EagerTensor inner = eager_.gelu(apply("h -> 4h", h, l.up));
  EagerTensor y = apply("4h -> h", inner, l.down);
  y = eager_.dropout("dropout", y);
  return normalize(eager_.add(y, h), l.norm_2);
}

EagerTensor HuggingFaceBert::loss(int64_t batch, int64_t tokens) {
  EagerTensor x = embed(batch, tokens);
  for (const Layer& l : layers_) x = layer(x, l);
  // The first token, as a view: it keeps the whole output alive, and its gradient is as large.
  const int64_t B = batch, T = tokens, C = config_.channels;
  const Shape first = {B, C};
  const EagerTensor token =
      eager_.op("first token", first, DType::F32, {Eager::fresh(x)}, {}, x.data.narrow(0, 1).reshape({T, C}).narrow(0, B));
  EagerTensor pooled = apply("pooler", token, pooler_);
  pooled = eager_.softmax("tanh", pooled);  // keeps its output, as softmax does
  return eager_.cross_entropy(apply("classifier", eager_.dropout("dropout", pooled), classifier_));
}

void HuggingFaceBert::step(int64_t batch, int64_t tokens, int64_t micro_batches) {
  for (int64_t i = 0; i < micro_batches; ++i) eager_.backward(loss(batch, tokens));
  eager_.adamw_step(true);
}

}  // namespace gradus
