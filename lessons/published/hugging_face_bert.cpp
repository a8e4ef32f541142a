#include "lessons/published/hugging_face.h"

namespace gradus {

HuggingFaceBert::HuggingFaceBert(Device& device, const TransformerConfig& config)
    : eager_(device, DType::F32, true), config_(config) {
  const int64_t C = config.channels;
  first_tensor_ = eager_.make({1, 1}, DType::F32, Kind::Other, "torch.ones((1, 1))");
  words_ = eager_.parameter({config.vocab, C}, "words");
  positions_ = eager_.parameter({config.context, C}, "positions");
  types_ = eager_.parameter({config.token_types, C}, "types");
  norm_ = eager_.norm_parameters(C, "norm");
  position_ids_ = eager_.make({1, config.context}, DType::I64, Kind::Other, "position_ids");
  for (int64_t l = 0; l < config.layers; ++l) {
    Layer& layer = layers_.emplace_back();
    layer.query = eager_.linear_parameters(C, C, "query");
    layer.key = eager_.linear_parameters(C, C, "key");
    layer.value = eager_.linear_parameters(C, C, "value");
    layer.output = eager_.linear_parameters(C, C, "output");
    layer.norm_1 = eager_.norm_parameters(C, "norm_1");
    layer.up = eager_.linear_parameters(4 * C, C, "up");
    layer.down = eager_.linear_parameters(C, 4 * C, "down");
    layer.norm_2 = eager_.norm_parameters(C, "norm_2");
  }
  pooler_ = eager_.linear_parameters(C, C, "pooler");
  classifier_ = eager_.linear_parameters(config.labels, C, "classifier");
}

EagerTensor HuggingFaceBert::embed(int64_t batch, int64_t tokens) {
  const Tensor ids = eager_.make({batch, tokens}, DType::I64, Kind::Data, "input_ids");
  const Tensor types = eager_.make({batch, tokens}, DType::I64, Kind::Data, "token_type_ids");
  const EagerTensor of_words = eager_.embedding(words_, ids), of_types = eager_.embedding(types_, types);
  EagerTensor sum = eager_.add(of_words, of_types);
  const EagerTensor of_positions = eager_.embedding(positions_, position_ids_);
  sum = eager_.view(sum.data, {Eager::passed(sum), Eager::fresh(of_positions)});  // in-place addition
  const EagerTensor y = eager_.layer_norm(sum, norm_);
  return eager_.dropout("dropout", y);
}

EagerTensor HuggingFaceBert::attention(const EagerTensor& x, const Layer& l) {
  const int64_t B = x.shape()[0], T = x.shape()[1], H = config_.heads, D = config_.channels / H;
  // These three are variables, so they stay alive until the function returns.
  const EagerTensor query = eager_.linear("query", x, l.query);
  const EagerTensor key = eager_.linear("key", x, l.key);
  const EagerTensor value = eager_.linear("value", x, l.value);
  const auto by_head = [&](const EagerTensor& y) { return eager_.copy("q, k, v by head", y, {B * H, T, D}); };

  EagerTensor scores = eager_.matmul("scores", by_head(query), by_head(key), {B * H, T, T});
  scores = eager_.map("scores", scores);  // divided by sqrt(D)
  scores =
      eager_.op("scores", scores.shape(), DType::F32, {Eager::passed_as(scores, DType::F32)});  // plus mask
  EagerTensor probs = eager_.softmax("softmax", scores);
  probs = eager_.dropout("dropped softmax", probs);
  const EagerTensor context = eager_.matmul("context", probs, by_head(value), {B * H, T, D});
  return eager_.copy("context", context, {B, T, H * D});
}

EagerTensor HuggingFaceBert::layer(const EagerTensor& x, const Layer& l) {
  const EagerTensor context = attention(x, l);
  const auto output = [&](const EagerTensor& in, const EagerLinear& dense, const EagerTensor& residual,
                          const EagerLinear& norm) {
    EagerTensor y = eager_.linear("dense", in, dense);
    y = eager_.dropout("dropout", y);
    return eager_.layer_norm(eager_.add(y, residual), norm);
  };
  const EagerTensor h = output(context, l.output, x, l.norm_1);
  const EagerTensor inner = eager_.gelu(eager_.linear("h -> 4h", h, l.up));
  return output(inner, l.down, h, l.norm_2);
}

EagerTensor HuggingFaceBert::loss(int64_t batch, int64_t tokens) {
  const int64_t rows = batch * tokens, C = config_.channels;
  EagerTensor x = embed(batch, tokens);
  for (const Layer& l : layers_) {
    const auto run = [this, &l](const EagerTensor& h) { return layer(h, l); };
    x = checkpoints ? eager_.checkpoint(x, run) : run(x);
  }
  // The first token of each sequence is a view: it keeps all of x alive, and its gradient is as large as x.
  EagerTensor pooled = eager_.view(x.data.reshape({rows, C}).narrow(0, batch), {Eager::fresh(x)});
  pooled = eager_.tanh(eager_.linear("pooler", pooled, pooler_));
  pooled = eager_.dropout("dropout", pooled);
  return eager_.cross_entropy(eager_.linear("classifier", pooled, classifier_));
}

void HuggingFaceBert::step(int64_t batch, int64_t tokens, int64_t micro_batches, Update update) {
  for (int64_t i = 0; i < micro_batches; ++i) eager_.backward(loss(batch, tokens));
  switch (update) {
    case Update::AdamW: return eager_.adamw_step();
    case Update::Adafactor: return eager_.adafactor_step();
    case Update::Adam8bit: return eager_.adam8bit_step();
  }
}

}  // namespace gradus
