// Runs kernels whose size is that of a tensor. Their scratch memory: ctx(), in tensor/call.h.
#pragma once
#include <type_traits>

#include "src/tensor/call.h"
#include "src/tensor/profile_range.h"

namespace gradus {

// Runs an entry of the kernel table on x's device, for all elements or all rows of x. cost: that of the
// entry.
//   run(&Backend::gelu_fwd, cost::gelu_fwd, x, x.in(), y.set());
template <class Size, class... A>
void run(void (*Backend::*entry)(const Ctx&, Size, A...), Cost (*cost)(Size, DType), const Tensor& x,
         std::type_identity_t<A>... arguments) {
  Size size;
  if constexpr (std::is_same_v<Size, RowShape>)
    size = x.rows();
  else
    size = x.numel();
  (be(x).*entry)(ctx(x, cost(size, x.dtype())), size, arguments...);
}

// Returns y, with x's shape, computed by an entry that takes x, y and options.
template <class Size, class... A>
Tensor applied(const char* name, void (*Backend::*entry)(const Ctx&, Size, CBuf x, Out y, A...),
               Cost (*cost)(Size, DType), const Tensor& x, std::type_identity_t<A>... options) {
  Tensor y = empty_like(x, name);
  run(entry, cost, x, x.in(), y.set(), options...);
  return y;
}

}  // namespace gradus
