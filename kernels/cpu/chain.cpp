#include "kernels/cpu/cpu.h"

namespace gradus::cpu {

void chain(const Ctx& ctx, RowShape s, const KernelChain& chain) { chain.function(ctx, s, chain); }

}  // namespace gradus::cpu
