#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

void chain(const Ctx& ctx, RowShape s, const KernelChain& chain) { chain.function(ctx, s, chain); }

}  // namespace gradus::GRADUS_GPU
