// On emu, the CPU's matmul takes the place of cuBLAS.
#include "kernels/cpu/cpu.h"

namespace gradus::emu {

#include "kernels/entries.inc"

void matmul(const Ctx& ctx, const MatmulShape& s, CBuf a, CBuf b, Out c) { cpu::matmul(ctx, s, a, b, c); }

}  // namespace gradus::emu
