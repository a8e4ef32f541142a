// On emu, the CPU's matmul takes the place of cuBLAS.
#include "kernels/cpu/cpu.h"

namespace gradus::emu {

#include "kernels/entries.inc"

void matmul(const Ctx& ctx, const MatmulShape& s, CBuf a, CBuf b, Out c) { cpu::matmul(ctx, s, a, b, c); }
void matmul_bias(const Ctx& ctx, const MatmulShape& s, CBuf a, CBuf b, CBuf bias, Out c) {
  cpu::matmul_bias(ctx, s, a, b, bias, c);
}

}  // namespace gradus::emu
