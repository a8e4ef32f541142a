// Parameters side by side in one buffer, so that one collective serves them all.
#pragma once
#include <string>
#include <vector>

#include "src/nn/parameter.h"

namespace gradus {

struct FlatParameters {
  std::vector<Parameter*> parameters;  // of one precision
  std::vector<int64_t> begin;          // where each begins, in elements
  int64_t numel = 0;                   // of the buffer, with what is between them and at the end

  // Behind those that are there, at a multiple of `align`.
  void add(Parameter& p, int64_t align = 1);
  void pad(int64_t multiple) { numel = round_up(numel, multiple); }
  // Elements [first, first + count) of parameter i, and all of it in its shape, in a flat buffer.
  Tensor piece(const Tensor& flat, size_t i, int64_t first, int64_t count) const {
    return flat.narrow(begin[i] + first, count);
  }
  Tensor whole(const Tensor& flat, size_t i) const {
    const Shape& shape = parameters[i]->leaf.shape;
    return piece(flat, i, 0, shape.numel()).reshape(shape);
  }
};

// That a backward pass has reached p: what all ranks are to add up, every one must have.
void check_gradient(const Parameter& p);

}  // namespace gradus
