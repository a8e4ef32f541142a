// PyTorch's eager mode as far as memory goes: what its operations allocate, what they keep for the backward
// pass, and when each tensor dies. Nothing is computed: on meta, the allocator, which follows PyTorch's
// rules, sees the requests that a GPU's would see. So a published run can be repeated, in milliseconds.
//
// How it differs from gradus's own tape:
// - a gradient is a new tensor. A parameter's first is kept, later ones are added to it and freed; of an
//   intermediate result, two are added in a third;
// - dropout keeps its mask, a byte an element, and its output is kept by what reads it;
// - every copy that a library call wants is a tensor: matmul's inputs are made contiguous;
// - a variable of the program keeps its tensor alive until it gets another value or its function returns;
// - AdamW makes its states in its first update, in the holes that the activations have left.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/tensor/tensor.h"

namespace gradus {

struct EagerTensor {  // what a variable of the program holds
  Tensor data;
  int node = 0;  // of the graph; 0: it wants no gradient
  const Shape& shape() const { return data.shape(); }
};
struct EagerLinear {  // or a norm: gain and bias
  EagerTensor weight, bias;
};

class Eager {
 public:
  // Parameters, gradients and states are of type `dtype`. Until version 1.10 softmax kept its input beside
  // its output, though only to ask for its type (github.com/pytorch/pytorch, issue 64000).
  Eager(Device& device, DType dtype, bool softmax_keeps_input)
      : device_(device), dtype_(dtype), softmax_keeps_input_(softmax_keeps_input), graph_(1) {}

  // In the order in which a program moves its model to the device; before any operation.
  EagerTensor parameter(const Shape&, const std::string& name);
  EagerLinear linear_parameters(int64_t out, int64_t in, const std::string& name);
  EagerLinear norm_parameters(int64_t channels, const std::string& name);
  // A weight that does not train. What is made of such weights alone has no place in the graph.
  EagerTensor frozen(const Shape&, DType, const std::string& name);
  // x.requires_grad_(): the gradient stays, in `leaf_gradient`.
  EagerTensor leaf(const EagerTensor& x);
  Tensor leaf_gradient;
  Tensor make(const Shape&, DType, Kind, const std::string& name);

  // The gradient of an input: a new tensor of its shape, or the output's gradient passed on.
  struct Edge {
    int to;
    bool is_new;
    Shape shape;
    DType dtype;
  };
  static Edge fresh(const EagerTensor& x) { return {x.node, true, x.shape(), x.data.dtype()}; }
  static Edge passed(const EagerTensor& x) { return {x.node, false, x.shape(), x.data.dtype()}; }
  static Edge passed_as(const EagerTensor& x, DType output) {  // converted, if the output is of another type
    return x.data.dtype() == output ? passed(x) : fresh(x);
  }
  // An operation makes a tensor; a view is another look at `data`. Gradients are made in the order of the
  // edges.
  EagerTensor op(const std::string& name, const Shape&, DType, std::vector<Edge>,
                 std::vector<Tensor> saved = {});
  EagerTensor view(const Tensor& data, std::vector<Edge>);

  // torch.cuda.amp.autocast: from the next step on products are made of fp16 copies of their fp32 inputs.
  // Those of parameters are made once in a forward pass and held until its end; softmax, GELU, norms and
  // losses are computed in fp32.
  bool autocast = false;

  // One input, nothing kept: element-wise, with a conversion, or a copy in another order.
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

  // torch.utils.checkpoint: f runs without keeping anything but x, and again when the backward pass comes to
  // it.
  EagerTensor checkpoint(const EagerTensor& x, const std::function<EagerTensor(const EagerTensor&)>& f);

  void backward(const EagerTensor& loss);  // consumes the graph
  // transformers' AdamW: two states a parameter, made in the first update, and a denominator for the time of
  // a parameter's update. (Theirs updates matrices, which decay, before the rest; no figure here shows it.)
  void adamw_step();
  // transformers' Adafactor, without momentum and decay: of a matrix a state of its rows and one of its
  // columns, of a vector one; and whole temporaries, of which `update` lives on until the next parameter's.
  void adafactor_step();
  // bitsandbytes' Adam8bit: states of a byte an element and a scale for every 2,048 (256 since 2024); tensors
  // of fewer than 4,096 elements have fp32 ones. No temporaries.
  void adam8bit_step();
  void drop_gradients();

 private:
  struct Node {
    std::vector<Edge> edges;
    std::vector<Tensor> saved;
    Tensor gradient;                          // of its output; a parameter's stays
    std::function<EagerTensor()> again = {};  // checkpoint's function, on its input
    bool leaf = false;
  };
  struct Parameter {
    std::string name;
    Tensor value, m, v;                   // Adafactor: m of the rows, v of the columns, or of a vector
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
  std::vector<Tensor> maps_;                    // what the codes of 8-bit Adam stand for
  std::map<int, EagerTensor> half_parameters_;  // of this forward pass, by node
  std::vector<Node>
      graph_;  // [0]: no gradient is wanted; then the parameters; then operations in their order
};

}  // namespace gradus
