// What each kernel costs, as formulas of its shapes: floating-point operations, bytes that must move, scratch
// memory. One function per entry of kernels.h, with the entry's name. The meter sums them; lessons compare
// them with time.
#pragma once
#include "kernels/kernels.h"

namespace gradus {

// The three classes of operations of a transformer (Ivanov et al. 2021, "Data movement is all you need", sec.
// 3).
enum class OpClass : uint8_t { Contraction, Normalization, Elementwise, Other };
constexpr int kOpClasses = 4;

struct Cost {
  OpClass op_class = OpClass::Other;
  int64_t flops = 0;
  int64_t bytes = 0;    // each input read once, each output written once
  int64_t scratch = 0;  // bytes of Ctx::scratch that the kernel needs
};

}  // namespace gradus
