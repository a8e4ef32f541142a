// The programs of the two published runs, Hugging Face's models in PyTorch's eager mode, reproduced as a list
// of allocations: what each operation allocates, and how long the program's variables keep it alive.
#pragma once
#include <vector>

#include "lessons/published/eager.h"
#include "src/nn/transformer.h"

namespace gradus {

// transformers 4.15, PyTorch 1.10: BertForSequenceClassification, trained by the Trainer in fp32. Between
// updates the gradients are filled with zeros, so they stay alive.
class HuggingFaceBert {
 public:
  HuggingFaceBert(Device&, const TransformerConfig&);  // loads the model
  enum class Update { AdamW, Adafactor, Adam8bit };
  void step(int64_t batch, int64_t tokens, int64_t micro_batches, Update);
  bool checkpoints = false;  // checkpoint every layer
  void autocast() { eager_.autocast = true; }

 private:
  struct Layer {
    EagerLinear query, key, value, output, norm_1, up, down, norm_2;
  };
  EagerTensor embed(int64_t batch, int64_t tokens);
  EagerTensor attention(const EagerTensor& x, const Layer&);
  EagerTensor layer(const EagerTensor& x, const Layer&);
  EagerTensor loss(int64_t batch, int64_t tokens);

  Eager eager_;
  const TransformerConfig config_;
  Tensor first_tensor_, position_ids_;
  EagerTensor words_, positions_, types_;
  EagerLinear norm_, pooler_, classifier_;
  std::vector<Layer> layers_;
};

// transformers 4.40, PyTorch 2.2: GPTNeoXForCausalLM in fp16, in the training loop of onlybooks/llm. The
// gradients are freed after the update. The outputs of a forward pass (the logits, and the keys and values of
// an unused cache) stay alive until the next forward pass has returned.
//
// With peft 0.10 and bitsandbytes 0.43. Lora: adapters of rank 8 on query_key_value, in fp16, with dropout.
// QLora: the linear layers of the blocks in NF4 with double quantization, everything else in fp32
// (prepare_model_for_kbit_training). There the output of the embedding requires a gradient, so that
// checkpointed layers have an input that requires one; this gradient stays alive as long as the graph of the
// returned logits.
enum class Tuning : uint8_t { All, Lora, QLora };
class HuggingFaceNeoX {
 public:
  HuggingFaceNeoX(Device&, const TransformerConfig&, Tuning);           // loads the model
  bool checkpoints = false;                                             // checkpoint every layer; no cache
  void step(int64_t batch, int64_t tokens, int64_t micro_batches = 1);  // without zero_grad
  void zero_grad() { eager_.drop_gradients(); }

 private:
  struct Layer {
    EagerLinear norm_1, norm_2, qkv, dense, up, down;
    EagerTensor a = {}, b = {};  // the adapter on qkv
  };
  struct Outputs {
    EagerTensor loss;
    Tensor logits;
    std::vector<Tensor> cache, graph;
  };
  void buffer(const Shape&, DType, Kind, const char* name);
  void make_workspaces();
  EagerTensor weight(const Shape&, const std::string& name);  // in the format of this tuning
  EagerLinear norm(int64_t channels, const std::string& name);
  EagerLinear linear_weights(int64_t out, int64_t in, const std::string& name);
  void make_codes(const Shape&, const std::string& name);
  EagerTensor linear(const std::string& name, const EagerTensor& x, const EagerLinear&);
  EagerTensor project(const EagerTensor& x, const Layer&);
  EagerTensor slice(const EagerTensor& qkv);
  EagerTensor rotate(const EagerTensor& x);
  EagerTensor attend(const EagerTensor& query, const EagerTensor& key, const EagerTensor& value);
  EagerTensor attention(const EagerTensor& x, const Layer&, std::vector<Tensor>& cache);
  EagerTensor layer(const EagerTensor& x, const Layer&, std::vector<Tensor>& cache);
  Outputs forward(const Tensor& ids);

  Eager eager_;
  const TransformerConfig config_;
  const Tuning tuning_;
  std::vector<Tensor> buffers_;
  EagerTensor embed_in_, embed_out_;
  EagerLinear norm_;
  std::vector<Layer> layers_;
  Outputs outputs_;
};

}  // namespace gradus
