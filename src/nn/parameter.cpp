#include "src/nn/parameter.h"

#include "src/core/named.h"
#include "src/tensor/call.h"
#include "src/tensor/context.h"

namespace gradus {

Parameter& Parameters::add(const std::string& name, const Shape& shape, const Precision& precision) {
  Parameter made;  // joins the list when it has its memory
  made.name = name;
  made.precision = precision;
  made.allocate(shape, allocate_);
  made.decay = shape.rank() >= 2;
  return add(std::move(made));
}

Parameter& Parameters::add(Parameter made) {
  check(names_.insert(made.name).second, "parameter '", made.name, "' is declared twice");
  made.leaf.dtype = made.precision.gradient;
  made.number = next_number_++;
  Parameter& p = list_.emplace_back(std::move(made));
  attach(p.value, p.leaf, p.name);
  return p;
}

void Parameter::allocate(const Shape& shape, Allocate when) {
  value = Tensor(current().device, shape, precision.value, Kind::Weight, name);
  if (when == Allocate::Later)
    value.storage().drop("its model was made with Allocate::Later, and it has no memory yet");
  else if (precision.master)
    master = Tensor(current().device, shape, DType::F32, Kind::Master, name + ".master");
}

void Parameter::round_master() {
  if (master.defined()) cast(master, value.set());
}

void Parameter::assign(const std::vector<double>& values) {
  Tensor to = kept();
  copy_from_host(to, values);
  round_master();
}

Parameter& Parameters::find(const std::string& name) {
  for (Parameter& p : list_)
    if (p.name == name) return p;
  fail("parameter '", name, "' does not exist; there are: ", joined(names_of(list_)));
}

void Parameters::set_trainable(Parameter& p, bool trainable) {
  check(!of_another_context(p.value.device()), "set_trainable: '", p.name,
        "' is of another context than the current one; make its context current");
  ++current().freezes;
  p.value.slot = {};
  if (trainable) attach(p.value, p.leaf, p.name);
}

void Parameters::zero_grad() {
  if (*shares) return (*shares)->zero_grad();
  if (on_zero_grad) on_zero_grad();
  for (Parameter& p : list_) p.leaf.zero();
}

void Parameters::drop_grad() {
  check(!*shares || !(*shares)->sums_gradients(),
        "drop_grad: the gradients are in buffers that are summed over all ranks; use zero_grad()");
  zero_grad();
  for (Parameter& p : list_) p.leaf.grad = {};
}

int64_t Parameters::numel() const {
  int64_t n = 0;
  for (const Parameter& p : list_) n += p.value.numel();
  return n;
}

int64_t Parameters::numel_trainable() const {
  int64_t n = 0;
  for (const Parameter& p : list_) n += p.trainable() ? p.value.numel() : 0;
  return n;
}

}  // namespace gradus
