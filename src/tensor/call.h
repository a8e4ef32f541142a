// One kernel call: the table of a tensor's device, the context of the call, its scratch memory.
#pragma once
#include "src/tensor/tensor.h"

namespace gradus {

// What a kernel finds in its first argument: be(x).gelu_fwd(ctx(x, cost), ...). The scratch is allocated here
// and freed at the end of the statement; the cost is added to the meter (its time too, if the meter keeps
// times).
class Call {
 public:
  Call(Device& device, const Cost& cost, UpdateScalars* update = nullptr);
  ~Call();
  Call(const Call&) = delete;
  operator const Ctx&() const { return ctx_; }

 private:
  Device& device_;
  Cost cost_;
  double start_ = 0;
  Block* scratch_ = nullptr;
  Ctx ctx_;
};
inline const Backend& be(const Tensor& x) { return x.device().backend(); }
inline Call ctx(const Tensor& x, const Cost& cost) { return Call(x.device(), cost); }
// y = x, or with Write::Add y += x, in y's dtype; y has as many elements.
inline void cast(const Tensor& x, Out y) {
  be(x).cast(ctx(x, cost::cast(x.numel(), x.dtype(), y.t)), x.numel(), x.in(), y);
}

}  // namespace gradus
