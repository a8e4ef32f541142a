// The two published runs, as their programs were: Hugging Face's models in PyTorch's eager mode, line by line
// what is allocated and how long Python's variables hold it (transformers 4.15 and 4.40, read and told again).
#pragma once
#include <vector>

#include "lessons/04_memory_anatomy/eager.h"
#include "src/nn/transformer.h"

namespace gradus {

// BertForSequenceClassification, trained by the Trainer: fp32, AdamW, gradients that are filled with zeros
// between steps and so stay alive.
class HuggingFaceBert {
 public:
  HuggingFaceBert(Device&, const TransformerConfig&);  // loads the model
  void step(int64_t batch, int64_t tokens, int64_t micro_batches);

 private:
  struct Linear {
    EagerTensor weight, bias;
  };
  struct Layer {
    Linear query, key, value, output;
    Linear norm_1;  // gain and bias
    Linear up, down;
    Linear norm_2;
  };
  Linear linear(int64_t out, int64_t in);
  Linear norm();
  EagerTensor apply(const char* name, const EagerTensor& x, const Linear& l);
  EagerTensor normalize(const EagerTensor& x, const Linear& l);
  EagerTensor embed(int64_t batch, int64_t tokens);
  EagerTensor attention(const EagerTensor& x, const Layer&);
  EagerTensor layer(const EagerTensor& x, const Layer&);
  EagerTensor loss(int64_t batch, int64_t tokens);

  Eager eager_;
  const TransformerConfig config_;
  Tensor first_tensor_, positions_;
  EagerTensor words_, places_, types_;
  Linear norm_;
  std::vector<Layer> layers_;
  Linear pooler_, classifier_;
};

// GPTNeoXForCausalLM in a loop of the book's own: everything in fp16 but for what the rotary tables in fp32 turn
// into fp32; AdamW; gradients dropped after the update. The outputs of a step, and with them the logits and the
// key-value cache, live until the next step has made its own.
class HuggingFaceNeoX {
 public:
  HuggingFaceNeoX(Device&, const TransformerConfig&);  // loads the model
  void step(int64_t batch, int64_t tokens);            // forward, backward, update
  void zero_grad() { eager_.drop_gradients(); }

 private:
  struct Linear {
    EagerTensor weight, bias;
  };
  struct Layer {
    Linear norm_1, norm_2, qkv, dense, up, down;
  };
  struct Outputs {
    EagerTensor loss;
    Tensor logits;
    std::vector<Tensor> cache;
  };
  Linear linear(int64_t out, int64_t in);
  Linear norm();
  EagerTensor apply(const char* name, const EagerTensor& x, const Linear& l);
  EagerTensor normalize(const EagerTensor& x, const Linear& l);
  EagerTensor slice(const EagerTensor& qkv);
  EagerTensor rotate(const EagerTensor& x);
  EagerTensor attention(const EagerTensor& x, const Layer&, std::vector<Tensor>& cache);
  EagerTensor layer(const EagerTensor& x, const Layer&, std::vector<Tensor>& cache);
  Outputs forward(const Tensor& ids);

  Eager eager_;
  const TransformerConfig config_;
  std::vector<Tensor> buffers_;
  EagerTensor words_, head_;
  std::vector<Layer> layers_;
  Linear norm_;
  Outputs outputs_;
};

}  // namespace gradus
