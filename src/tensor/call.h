// One kernel call: the kernel table of a tensor's device, the Ctx of the call, its scratch memory.
#pragma once
#include "src/tensor/tensor.h"

namespace gradus {

// Meters a kernel: counts its cost and, if the meter keeps times, measures the time until it is destroyed.
class Metered {
 public:
  Metered(Device& device, const Cost& cost);
  ~Metered();
  Metered(const Metered&) = delete;

 private:
  Device& device_;
  OpClass op_class_;
  double start_ = 0;
};

// The first argument of a kernel: be(x).gelu_fwd(ctx(x, cost), ...). It allocates the scratch memory, frees
// it at the end of the statement, and meters the cost.
class Call {
 public:
  Call(Device& device, const Cost& cost, UpdateScalars* update = nullptr);
  ~Call();
  Call(const Call&) = delete;
  operator const Ctx&() const { return ctx_; }

 private:
  Device& device_;
  Cost cost_;
  Block* scratch_ = nullptr;
  Ctx ctx_;
  Metered metered_;
};
inline const Backend& be(const Tensor& x) { return x.device().backend(); }
inline Call ctx(const Tensor& x, const Cost& cost) { return Call(x.device(), cost); }
// y = x, or with Write::Add y += x, in y's dtype; y has as many elements.
inline void cast(const Tensor& x, Out y) {
  be(x).cast(ctx(x, cost::cast(x.numel(), x.dtype(), y.t)), x.numel(), x.in(), y);
}

}  // namespace gradus
