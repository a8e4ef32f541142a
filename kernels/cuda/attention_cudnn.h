// attention_flash by cuDNN, on real GPUs only. Both return false, and have done nothing, where cuDNN cannot
// do what the contract asks; then our own kernels of attention_flash.cu run.
#pragma once
#include "kernels/kernels.h"

namespace gradus::cuda {

bool attention_cudnn_fwd(const Ctx&, const AttentionShape&, CBuf q, CBuf k, CBuf v, Out y, Out lse);
bool attention_cudnn_bwd(const Ctx&, const AttentionShape&, CBuf q, CBuf k, CBuf v, CBuf y, CBuf lse, CBuf dy,
                         Out dq, Out dk, Out dv);

}  // namespace gradus::cuda
