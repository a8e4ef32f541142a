#include "src/nn/parameter.h"

#include "src/tensor/context.h"

namespace gradus {

Parameter& Parameters::add(const std::string& name, const Shape& shape, DType dtype) {
  for (const Parameter& p : list_) check(p.name != name, "parameter '", name, "' is declared twice");
  Parameter& p = list_.emplace_back();
  p.name = name;
  p.value = Tensor(current().device, shape, dtype, Kind::Weight, name);
  p.leaf.name = name;
  p.decay = shape.rank() >= 2;
  set_trainable(p, true);
  return p;
}

Parameter& Parameters::find(const std::string& name) {
  for (Parameter& p : list_)
    if (p.name == name) return p;
  std::string known;
  for (const Parameter& p : list_) known += (known.empty() ? "" : ", ") + p.name;
  fail("parameter '", name, "' does not exist; there are: ", known);
}

void Parameters::set_trainable(Parameter& p, bool trainable) {
  p.value.slot = trainable ? Slot{++current().last_slot, &p.leaf} : Slot{};
}

void Parameters::zero_grad() {
  for (Parameter& p : list_) p.leaf.zero();
}

int64_t Parameters::numel() const {
  int64_t n = 0;
  for (const Parameter& p : list_) n += p.value.numel();
  return n;
}

}  // namespace gradus
