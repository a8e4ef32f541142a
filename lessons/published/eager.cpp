#include "lessons/published/eager.h"

#include <algorithm>
#include <utility>

namespace gradus {

Tensor Eager::make(const Shape& shape, DType dtype, Kind kind, const std::string& name) {
  return Tensor(device_, shape, dtype, kind, name);
}

EagerTensor Eager::parameter(const Shape& shape, const std::string& name) {
  check(graph_.size() == parameters_.size() + 1, "eager: parameter ", name, " comes after an operation");
  parameters_.push_back({name, make(shape, dtype_, Kind::Weight, name), {}, {}});
  graph_.emplace_back();
  return {parameters_.back().value, int(graph_.size()) - 1};
}
EagerLinear Eager::linear_parameters(int64_t out, int64_t in, const std::string& name) {
  const EagerTensor weight = parameter({out, in}, name + ".weight");
  return {weight, parameter({out}, name + ".bias")};
}
EagerLinear Eager::norm_parameters(int64_t channels, const std::string& name) {
  const EagerTensor gain = parameter({channels}, name + ".gain");
  return {gain, parameter({channels}, name + ".bias")};
}

EagerTensor Eager::frozen(const Shape& shape, DType dtype, const std::string& name) {
  return {make(shape, dtype, Kind::Weight, name)};
}
EagerTensor Eager::leaf(const EagerTensor& x) {
  const EagerTensor y = record(x.data, {}, {});
  graph_[y.node].leaf = true;
  return y;
}

EagerTensor Eager::record(Tensor y, std::vector<Edge> edges, std::vector<Tensor> saved) {
  const auto unwanted = [](const Edge& e) { return e.to == 0; };
  if (!edges.empty() && std::all_of(edges.begin(), edges.end(), unwanted)) return {std::move(y)};
  const EagerTensor result = {std::move(y), int(graph_.size())};
  graph_.push_back({std::move(edges), {}, {}});
  for (Tensor& t : saved) keep(result, std::move(t));
  return result;
}
void Eager::keep(const EagerTensor& y, Tensor t) {
  if (y.node == 0) return;
  if (t.storage().kind() == Kind::Temporary) t.storage().set_kind(Kind::Activation);
  graph_[y.node].saved.push_back(std::move(t));
}
EagerTensor Eager::op(const std::string& name, const Shape& shape, DType dtype, std::vector<Edge> edges,
                      std::vector<Tensor> saved) {
  return record(make(shape, dtype, Kind::Temporary, name), std::move(edges), std::move(saved));
}
EagerTensor Eager::view(const Tensor& data, std::vector<Edge> edges) {
  return record(data, std::move(edges), {});
}

EagerTensor Eager::map(const std::string& name, const EagerTensor& x, DType to) {
  return op(name, x.shape(), to, {fresh(x)});
}
EagerTensor Eager::copy(const std::string& name, const EagerTensor& x, const Shape& shape) {
  return op(name, shape, x.data.dtype(), {fresh(x)});
}
EagerTensor Eager::half(const EagerTensor& x) {
  if (!autocast || x.data.dtype() != DType::F32) return x;
  if (!is_parameter(x.node)) return map("fp16 copy", x, DType::F16);
  EagerTensor& copy = half_parameters_[x.node];
  if (!copy.data.defined()) {
    copy = map("fp16 copy", x, DType::F16);
    copy.data.storage().set_kind(Kind::Weight);
  }
  return copy;
}
EagerTensor Eager::single(const EagerTensor& x) {
  return autocast && x.data.dtype() == DType::F16 ? map("fp32 copy", x, DType::F32) : x;
}
EagerTensor Eager::add(const EagerTensor& x, const EagerTensor& y) {
  const DType t = x.data.dtype() == y.data.dtype() ? x.data.dtype() : DType::F32;
  return op("add", x.shape(), t, {passed_as(x, t), passed_as(y, t)});
}
EagerTensor Eager::linear(const std::string& name, const EagerTensor& x0, const EagerLinear& l) {
  const EagerTensor x = half(x0), weight = half(l.weight);
  std::vector<Edge> edges = {fresh(weight), fresh(x)};
  if (l.bias.data.defined()) edges.insert(edges.begin(), fresh(half(l.bias)));
  const EagerTensor y =
      op(name, x.shape().with_last(weight.shape()[0]), x.data.dtype(), edges, {weight.data});
  if (weight.node != 0) keep(y, x.data);
  return y;
}
EagerTensor Eager::matmul(const std::string& name, const EagerTensor& x0, const EagerTensor& y0,
                          const Shape& shape) {
  const EagerTensor x = half(x0), y = half(y0);
  return op(name, shape, x.data.dtype(), {fresh(y), fresh(x)}, {x.data, y.data});
}
EagerTensor Eager::softmax(const std::string& name, const EagerTensor& x0) {
  const EagerTensor x = single(x0);
  const EagerTensor y = map(name, x);
  if (softmax_keeps_input_) keep(y, x.data);
  keep(y, y.data);
  return y;
}
EagerTensor Eager::tanh(const EagerTensor& x) {
  const EagerTensor y = map("tanh", x);
  keep(y, y.data);
  return y;
}
EagerTensor Eager::gelu(const EagerTensor& x0) {
  const EagerTensor x = single(x0);
  return op("gelu", x.shape(), x.data.dtype(), {fresh(x)}, {x.data});
}
EagerTensor Eager::dropout(const std::string& name, const EagerTensor& x) {
  const EagerTensor y = map(name, x);
  keep(y, make(x.shape(), DType::U8, Kind::Temporary, "dropout mask"));
  return y;
}
EagerTensor Eager::layer_norm(const EagerTensor& x, const EagerLinear& norm) {
  const EagerTensor y =
      op("layer_norm", x.shape(), x.data.dtype(), {fresh(x), fresh(norm.weight), fresh(norm.bias)}, {x.data});
  for (const char* name : {"layer_norm.mean", "layer_norm.rstd"})
    keep(y, make({x.data.rows().rows}, DType::F32, Kind::Temporary, name));
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
  Tensor& sum = graph_[edge.to].gradient;
  if (!sum.defined()) {
    sum = std::move(gradient);
    if (is_parameter(edge.to)) sum.storage().set_kind(Kind::Gradient);
  } else if (!is_parameter(edge.to)) {
    sum = make(edge.shape, edge.dtype, Kind::Temporary, "sum of gradients");
  }
}

EagerTensor Eager::checkpoint(const EagerTensor& x, const std::function<EagerTensor(const EagerTensor&)>& f) {
  const size_t before = graph_.size();
  EagerTensor y = f(x);
  graph_.resize(before);  // without a graph nothing is saved
  for (auto& [parameter, copy] : half_parameters_) copy.node = 0;
  y = view(y.data, {});
  keep(y, x.data);
  graph_[y.node].recompute = [this, x, f] { return f(view(x.data, {passed(x)})); };
  return y;
}

void Eager::backward(const EagerTensor& loss) {
  half_parameters_.clear();
  graph_[loss.node].gradient = make({}, loss.data.dtype(), Kind::Temporary, "gradient");
  for (; !is_parameter(int(graph_.size()) - 1); graph_.pop_back()) {
    Node node = std::move(graph_.back());
    if (!node.gradient.defined()) continue;
    if (node.recompute) {  // the recomputed operations replace the node at the end of the graph
      graph_.pop_back();
      const EagerTensor y = node.recompute();
      half_parameters_.clear();
      graph_[y.node].gradient = node.gradient;
      graph_.emplace_back();  // the loop pops it
      continue;
    }
    std::vector<Tensor> gradients;
    for (const Edge& e : node.edges)
      gradients.push_back(e.is_new && e.to ? make(e.shape, e.dtype, Kind::Temporary, "gradient")
                                           : node.gradient);
    node.saved.clear();
    if (node.leaf) leaf_gradient = node.gradient;
    node.gradient = {};
    for (size_t i = node.edges.size(); i-- > 0;) deliver(node.edges[i], std::move(gradients[i]));
  }
}

void Eager::update(Parameter& p) {
  const Shape& shape = p.value.shape();
  if (!p.m.defined()) {
    p.m = make(shape, dtype_, Kind::Optimizer, p.name + ".m");
    p.v = make(shape, dtype_, Kind::Optimizer, p.name + ".v");
  }
  make(shape, dtype_, Kind::Temporary, p.name + ".denominator");
}

void Eager::adamw_step() {
  for (Parameter& p : parameters_) update(p);
}

void Eager::adafactor_step() {
  const auto temporary = [&](const Shape& shape) {
    return make(shape, dtype_, Kind::Temporary, "adafactor");
  };
  const auto state = [&](Tensor& t, const Shape& shape, const std::string& name) {
    if (!t.defined()) t = make(shape, dtype_, Kind::Optimizer, name);
  };
  Tensor update;
  for (Parameter& p : parameters_) {
    const Shape& shape = p.value.shape();
    const bool factored = shape.rank() > 1;
    if (factored) state(p.m, {shape[0]}, p.name + ".rows");
    state(p.v, {shape[-1]}, p.name + ".columns");
    {
      const Tensor squares = temporary(shape);
      update = temporary(shape);  // squares + eps
    }
    update = temporary(shape);  // from the states, times the gradient; the old tensor is freed afterwards
    const Tensor negative = temporary(shape);
  }
}

void Eager::adam8bit_step() {
  while (codebooks_.size() < 2) codebooks_.push_back(make({256}, DType::F32, Kind::Other, "codebook"));
  for (Parameter& p : parameters_) {
    if (p.m.defined()) continue;
    const int64_t n = p.value.numel();
    const DType dtype = n < 4096 ? DType::F32 : DType::U8;
    p.m = make(p.value.shape(), dtype, Kind::Optimizer, p.name + ".m");
    p.v = make(p.value.shape(), dtype, Kind::Optimizer, p.name + ".v");
    if (dtype == DType::F32) continue;
    p.m_scales = make({(n + 2047) / 2048}, DType::F32, Kind::Optimizer, p.name + ".m.scales");
    p.v_scales = make({(n + 2047) / 2048}, DType::F32, Kind::Optimizer, p.name + ".v.scales");
  }
}

void Eager::drop_gradients() {
  for (size_t i = 1; i <= parameters_.size(); ++i) graph_[i].gradient = {};
}

}  // namespace gradus
