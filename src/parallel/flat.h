// Parameters in one flat buffer, so that one collective handles all of them.
#pragma once
#include <vector>

#include "src/nn/parameter.h"

namespace gradus {

struct FlatParameters {
  std::vector<Parameter*> parameters;  // of one precision
  std::vector<int64_t> begin;          // where each begins, in elements
  int64_t numel = 0;                   // of the buffer, including padding between them and at the end

  // Appends p, at a multiple of `align`.
  void add(Parameter& p, int64_t align = 1);
  void pad(int64_t multiple) { numel = round_up(numel, multiple); }
  // The view of parameter i, in its shape, in a flat buffer.
  Tensor whole(const Tensor& flat, size_t i) const {
    const Shape& shape = parameters[i]->leaf.shape;
    return flat.narrow(begin[i], shape.numel()).reshape(shape);
  }
  // Removes the gradients, and the callbacks to an object that is about to end.
  void detach() const {
    for (Parameter* p : parameters) p->leaf.on_final = {}, p->leaf.grad = {}, p->leaf.zero();
  }
};
template <class List>
int64_t numel_of(const List& buffers) {
  int64_t n = 0;
  for (const FlatParameters& f : buffers) n += f.numel;
  return n;
}

// Checks that a backward pass has reached p: a gradient that all ranks sum must exist on every rank.
void check_gradient(const Parameter& p);

}  // namespace gradus
