// PyTorch's eager mode as far as memory goes: what its operations allocate, what they keep for the backward
// pass, and when each tensor dies. No numbers are computed: the device is meta, and the allocator, which follows
// PyTorch's rules, sees the requests that a GPU's would see. A published run can be repeated with it, in
// milliseconds.
//
// How it differs from gradus's own tape:
// - a tensor lives as long as a Python variable, the graph or a gradient that is on its way refers to it;
// - a gradient is a new tensor: a parameter's first is kept, later ones are added to it and freed; of an
//   intermediate result, the second is added to the first in a third tensor;
// - dropout keeps its mask (a byte an element), and every copy that a library call wants is a tensor;
// - AdamW makes its states in its first step, when the activations have left holes in the allocator's segments.
#pragma once
#include <string>
#include <vector>

#include "src/tensor/tensor.h"

namespace gradus {

struct EagerTensor {  // what a Python variable holds
  Tensor data;
  int node = 0;  // of the graph; 0: no gradient is wanted
  const Shape& shape() const { return data.shape(); }
};

class Eager {
 public:
  // Until version 1.10 softmax kept its input too, only to ask for its type (github.com/pytorch/pytorch,
  // issue 64000).
  Eager(Device& device, bool softmax_keeps_input)
      : device_(device), softmax_keeps_input_(softmax_keeps_input), graph_(1) {}

  // The gradient of an input: a new tensor, or the output's gradient itself.
  struct Edge {
    int to;
    bool is_new;
    Shape shape;
    DType dtype;
  };
  static Edge fresh(const EagerTensor& x) { return {x.node, true, x.shape(), x.data.dtype()}; }
  static Edge passed(const EagerTensor& x) { return {x.node, false, x.shape(), x.data.dtype()}; }

  EagerTensor parameter(const Shape&, DType, const char* name);  // in the order in which a model is loaded
  Tensor make(const Shape&, DType, Kind, const std::string& name);
  // An operation: a new tensor, or if `view_of` is given, that one in another shape. Gradients are computed in
  // the order of the edges; `saved` is kept for that.
  EagerTensor op(const std::string& name, const Shape&, DType, std::vector<Edge>, std::vector<Tensor> saved = {},
                 const Tensor& view_of = {});
  void keep_output(const EagerTensor& y);  // for the backward pass of the operation that made it

  // Operations of both models. Element-wise ones that keep nothing are map.
  EagerTensor map(const std::string& name, const EagerTensor& x) { return map(name, x, x.data.dtype()); }
  EagerTensor map(const std::string& name, const EagerTensor& x, DType);  // with a conversion
  EagerTensor copy(const std::string& name, const EagerTensor& x, const Shape&);  // x is not contiguous
  EagerTensor add(const EagerTensor& x, const EagerTensor& y);
  EagerTensor linear(const std::string& name, const EagerTensor& x, const EagerTensor& w, const EagerTensor& b);
  EagerTensor matmul(const std::string& name, const EagerTensor& x, const EagerTensor& y, const Shape&);
  EagerTensor softmax(const std::string& name, const EagerTensor& x);
  EagerTensor gelu(const EagerTensor& x);
  EagerTensor dropout(const std::string& name, const EagerTensor& x);
  EagerTensor layer_norm(const EagerTensor& x, const EagerTensor& gain, const EagerTensor& bias);
  EagerTensor embedding(const EagerTensor& table, const Tensor& ids);
  EagerTensor cross_entropy(const EagerTensor& logits);  // (rows, classes) -> scalar

  void backward(const EagerTensor& loss);  // and the graph is gone
  // AdamW as transformers had it: two states a parameter, made in the first step, and a denominator that lives
  // for one parameter's update. First the parameters that decay (matrices) if `decay_first`.
  void adamw_step(bool decay_first);
  void drop_gradients();

 private:
  struct Node {
    std::vector<Edge> edges;
    std::vector<Tensor> saved;
    Tensor gradient;  // of its output; of parameters it stays
  };
  struct Parameter {
    std::string name;
    Tensor value, m, v;
  };
  void deliver(const Edge&, Tensor gradient);

  Device& device_;
  const bool softmax_keeps_input_;
  std::vector<Parameter> parameters_;
  std::vector<Node> graph_;  // [0] for what wants no gradient, then the parameters, then operations in order
};

}  // namespace gradus
