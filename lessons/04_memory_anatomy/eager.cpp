#include "lessons/04_memory_anatomy/eager.h"

#include <utility>

namespace gradus {

Tensor Eager::make(const Shape& shape, DType dtype, Kind kind, const std::string& name) {
  return Tensor(device_, shape, dtype, kind, name);
}

EagerTensor Eager::parameter(const Shape& shape, DType dtype, const char* name) {
  check(graph_.size() == parameters_.size() + 1, "eager: parameter ", name, " comes after operations");
  parameters_.push_back({name, make(shape, dtype, Kind::Weight, name), {}, {}});
  graph_.emplace_back();
  return {parameters_.back().value, int(graph_.size()) - 1};
}

EagerTensor Eager::op(const std::string& name, const Shape& shape, DType dtype, std::vector<Edge> edges,
                      std::vector<Tensor> saved, const Tensor& view_of) {
  Tensor y = view_of.defined() ? view_of : make(shape, dtype, Kind::Temporary, name);
  for (const Tensor& s : saved)
    if (s.storage().kind() == Kind::Temporary) Tensor(s).storage().set_kind(Kind::Activation);
  graph_.push_back({std::move(edges), std::move(saved), {}});
  return {std::move(y), int(graph_.size()) - 1};
}

void Eager::keep_output(const EagerTensor& y) {
  Tensor kept = y.data;
  kept.storage().set_kind(Kind::Activation);
  graph_[y.node].saved.push_back(kept);
}

EagerTensor Eager::map(const std::string& name, const EagerTensor& x, DType dtype) {
  return op(name, x.shape(), dtype, {fresh(x)});
}
EagerTensor Eager::copy(const std::string& name, const EagerTensor& x, const Shape& shape) {
  return op(name, shape, x.data.dtype(), {fresh(x)});
}
EagerTensor Eager::add(const EagerTensor& x, const EagerTensor& y) {
  return op("add", x.shape(), x.data.dtype(), {passed(x), passed(y)});
}
EagerTensor Eager::linear(const std::string& name, const EagerTensor& x, const EagerTensor& w,
                          const EagerTensor& b) {
  std::vector<Edge> edges = {fresh(w), fresh(x)};
  if (b.node) edges.insert(edges.begin(), fresh(b));  // else there is no bias
  return op(name, x.shape().with_last(w.shape()[0]), x.data.dtype(), edges, {x.data});
}
EagerTensor Eager::matmul(const std::string& name, const EagerTensor& x, const EagerTensor& y,
                          const Shape& shape) {
  return op(name, shape, x.data.dtype(), {fresh(y), fresh(x)}, {x.data, y.data});
}
EagerTensor Eager::softmax(const std::string& name, const EagerTensor& x) {
  const EagerTensor y = op(name, x.shape(), x.data.dtype(), {fresh(x)},
                           softmax_keeps_input_ ? std::vector<Tensor>{x.data} : std::vector<Tensor>());
  keep_output(y);
  return y;
}
EagerTensor Eager::gelu(const EagerTensor& x) {
  return op("gelu", x.shape(), x.data.dtype(), {fresh(x)}, {x.data});
}
EagerTensor Eager::dropout(const std::string& name, const EagerTensor& x) {
  const EagerTensor y = map(name, x);
  graph_[y.node].saved = {make(x.shape(), DType::U8, Kind::Activation, "dropout mask")};
  return y;
}
EagerTensor Eager::layer_norm(const EagerTensor& x, const EagerTensor& gain, const EagerTensor& bias) {
  const Shape rows = {x.data.rows().rows};
  const EagerTensor y = op("layer_norm", x.shape(), x.data.dtype(), {fresh(x), fresh(gain), fresh(bias)}, {x.data});
  for (const char* name : {"layer_norm.mean", "layer_norm.rstd"})
    graph_[y.node].saved.push_back(make(rows, DType::F32, Kind::Activation, name));
  return y;
}
EagerTensor Eager::embedding(const EagerTensor& table, const Tensor& ids) {
  Shape shape = ids.shape();
  shape.push_back(table.shape()[1]);
  return op("embedding", shape, table.data.dtype(), {fresh(table)}, {ids});
}
EagerTensor Eager::cross_entropy(const EagerTensor& logits) {
  const EagerTensor log_p = softmax("log_softmax", logits);
  return op("loss", {}, logits.data.dtype(), {fresh(log_p)});
}

void Eager::deliver(const Edge& edge, Tensor gradient) {
  if (edge.to == 0) return;
  Node& node = graph_[edge.to];
  if (!node.gradient.defined()) {
    node.gradient = std::move(gradient);
    if (edge.to <= int(parameters_.size())) node.gradient.storage().set_kind(Kind::Gradient);
  } else if (edge.to > int(parameters_.size())) {
    node.gradient = make(edge.shape, edge.dtype, Kind::Temporary, "sum of gradients");
  }
}

void Eager::backward(const EagerTensor& loss) {
  graph_[loss.node].gradient = make({}, loss.data.dtype(), Kind::Temporary, "gradient of the loss");
  while (graph_.size() > parameters_.size() + 1) {
    Node node = std::move(graph_.back());
    graph_.pop_back();
    if (!node.gradient.defined()) continue;
    std::vector<Tensor> gradients;
    for (const Edge& e : node.edges)
      gradients.push_back(e.is_new && e.to ? make(e.shape, e.dtype, Kind::Temporary, "gradient")
                                           : node.gradient);
    node.saved.clear();
    node.gradient = {};
    for (size_t i = node.edges.size(); i-- > 0;) deliver(node.edges[i], std::move(gradients[i]));
  }
}

void Eager::adamw_step(bool decay_first) {
  for (const bool matrices : {true, false})
    for (Parameter& p : parameters_) {
      if (decay_first ? (p.value.shape().rank() >= 2) != matrices : !matrices) continue;
      const Shape& shape = p.value.shape();
      const DType dtype = p.value.dtype();
      if (!p.m.defined()) {
        p.m = make(shape, dtype, Kind::Optimizer, p.name + ".m");
        p.v = make(shape, dtype, Kind::Optimizer, p.name + ".v");
      }
      make(shape, dtype, Kind::Temporary, p.name + ".denominator");
    }
}

void Eager::drop_gradients() {
  for (size_t i = 1; i <= parameters_.size(); ++i) graph_[i].gradient = {};
}

}  // namespace gradus
