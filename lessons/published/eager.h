// The memory of PyTorch's eager mode: what its operations allocate, which tensors they save for backward, and
// when each tensor is freed. Nothing is computed. The allocator of the device meta follows the rules of
// PyTorch's allocator and gets the requests that a GPU's gets, so a published run is reproduced in
// milliseconds.
//
// Differences from the tape of gradus:
// - A gradient is a new tensor. A parameter's first gradient stays; later ones are added to it and freed. Two
//   gradients of an intermediate result are added into a third tensor.
// - Dropout saves its mask, one byte per element, and the operation that reads its output saves the output.
// - Every copy that a library call needs is a tensor: matmul makes its inputs contiguous.
// - A variable of the program keeps its tensor alive until the variable is assigned or its function returns.
// - AdamW allocates its states in the first update, in the free blocks that the activations have left.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/tensor/tensor.h"

namespace gradus {

struct EagerTensor {  // the value of a variable of the program
  Tensor data;
  int node = 0;  // in the graph; 0: requires no gradient
  const Shape& shape() const { return data.shape(); }
};
struct EagerLinear {  // of a norm: gain and bias
  EagerTensor weight, bias;
};

class Eager {
 public:
  // Parameters, gradients and states have the type `dtype`. Until version 1.10 softmax saved its input as
  // well as its output, although it only needs the input's type (github.com/pytorch/pytorch, issue 64000).
  Eager(Device& device, DType dtype, bool softmax_keeps_input)
      : device_(device), dtype_(dtype), softmax_keeps_input_(softmax_keeps_input), graph_(1) {}

  // Parameters are created in the order in which the program moves its model to the device, before any
  // operation.
  EagerTensor parameter(const Shape&, const std::string& name);
  EagerLinear linear_parameters(int64_t out, int64_t in, const std::string& name);
  EagerLinear norm_parameters(int64_t channels, const std::string& name);
  // A weight that is not trained. Results that depend only on such weights are not recorded in the graph.
  EagerTensor frozen(const Shape&, DType, const std::string& name);
  // x.requires_grad_(): the gradient is kept in `leaf_gradient`.
  EagerTensor leaf(const EagerTensor& x);
  Tensor leaf_gradient;
  Tensor make(const Shape&, DType, Kind, const std::string& name);

  // The gradient of an input: a new tensor of the input's shape, or the output's gradient itself.
  struct Edge {
    int to;
    bool is_new;
    Shape shape;
    DType dtype;
  };
  static Edge fresh(const EagerTensor& x) { return {x.node, true, x.shape(), x.data.dtype()}; }
  static Edge passed(const EagerTensor& x) { return {x.node, false, x.shape(), x.data.dtype()}; }
  static Edge passed_as(const EagerTensor& x, DType output) {  // converted if the output's type differs
    return x.data.dtype() == output ? passed(x) : fresh(x);
  }
  // An operation allocates a tensor; a view shares the memory of `data`. Gradients are allocated in the order
  // of the edges.
  EagerTensor op(const std::string& name, const Shape&, DType, std::vector<Edge>,
                 std::vector<Tensor> saved = {});
  EagerTensor view(const Tensor& data, std::vector<Edge>);

  // torch.cuda.amp.autocast, from the next step on: matrix products read fp16 copies of their fp32 inputs.
  // A parameter is copied once per forward pass, and the copy stays until the end of the pass. Softmax, GELU,
  // norms and losses are computed in fp32.
  bool autocast = false;

  // One input, nothing saved: an element-wise operation, a conversion, or a copy in a different order.
  EagerTensor map(const std::string& name, const EagerTensor& x) { return copy(name, x, x.shape()); }
  EagerTensor map(const std::string& name, const EagerTensor& x, DType to);
  EagerTensor copy(const std::string& name, const EagerTensor& x, const Shape&);
  EagerTensor add(const EagerTensor& x, const EagerTensor& y);
  EagerTensor linear(const std::string& name, const EagerTensor& x,
                     const EagerLinear&);  // bias may be missing
  EagerTensor matmul(const std::string& name, const EagerTensor& x, const EagerTensor& y, const Shape&);
  EagerTensor softmax(const std::string& name, const EagerTensor& x);
  EagerTensor tanh(const EagerTensor& x);
  EagerTensor gelu(const EagerTensor& x);
  EagerTensor dropout(const std::string& name, const EagerTensor& x);
  EagerTensor layer_norm(const EagerTensor& x, const EagerLinear& norm);
  EagerTensor embedding(const EagerTensor& table, const Tensor& ids);
  EagerTensor cross_entropy(const EagerTensor& logits);

  // torch.utils.checkpoint: the forward pass of f saves only x; the backward pass recomputes f.
  EagerTensor checkpoint(const EagerTensor& x, const std::function<EagerTensor(const EagerTensor&)>& f);

  void backward(const EagerTensor& loss);  // consumes the graph
  // transformers' AdamW: two states per parameter, allocated in the first update, and a denominator during
  // the update of each parameter. (transformers updates the matrices, which have weight decay, before the
  // rest; no figure depends on this order.)
  void adamw_step();
  // transformers' Adafactor without momentum and weight decay: a matrix has one state for its rows and one
  // for its columns, a vector has one state. Its temporaries have the parameter's shape; the temporary
  // `update` stays alive until that of the next parameter is allocated.
  void adafactor_step();
  // bitsandbytes' Adam8bit: states of one byte per element and one scale per 2,048 elements (256 since 2024).
  // Tensors of fewer than 4,096 elements have fp32 states. No temporaries.
  void adam8bit_step();
  void drop_gradients();

 private:
  struct Node {
    std::vector<Edge> edges;
    std::vector<Tensor> saved;
    Tensor gradient;                              // of its output; a parameter's gradient stays
    std::function<EagerTensor()> recompute = {};  // the checkpointed function on its input
    bool leaf = false;
  };
  struct Parameter {
    std::string name;
    Tensor value, m, v;                   // Adafactor: m for the rows, v for the columns, or for a vector
    Tensor m_scales = {}, v_scales = {};  // 8-bit Adam
  };
  bool is_parameter(int node) const { return node <= int(parameters_.size()); }
  EagerTensor half(const EagerTensor& x);    // x, or under autocast its fp16 copy
  EagerTensor single(const EagerTensor& x);  // x, or under autocast its fp32 copy
  EagerTensor record(Tensor y, std::vector<Edge>, std::vector<Tensor> saved);
  void keep(const EagerTensor& y, Tensor t);  // for the backward pass of the operation that made y
  void deliver(const Edge&, Tensor gradient);
  void update(Parameter&);

  Device& device_;
  const DType dtype_;
  const bool softmax_keeps_input_;
  std::vector<Parameter> parameters_;
  std::vector<Tensor> codebooks_;               // of 8-bit Adam
  std::map<int, EagerTensor> half_parameters_;  // of this forward pass, by node
  std::vector<Node>
      graph_;  // [0]: tensors that require no gradient; then the parameters; then the operations in order
};

}  // namespace gradus
