// attention_flash by cuDNN, on real GPUs only. Both return false, and have done nothing, where cuDNN cannot
// do what the contract asks; then our own kernels of attention_flash.cu run.
#pragma once
#include "kernels/cuda/compiler.h"
#include "kernels/kernels.h"

namespace gradus::GRADUS_GPU {

bool attention_cudnn_fwd(const Ctx&, const AttentionShape&, CBuf q, CBuf k, CBuf v, Out y, Out lse);
bool attention_cudnn_bwd(const Ctx&, const AttentionShape&, CBuf q, CBuf k, CBuf v, CBuf y, CBuf lse, CBuf dy,
                         Out dq, Out dk, Out dv);

#ifndef GRADUS_CUDNN
inline bool attention_cudnn_fwd(const Ctx&, const AttentionShape&, CBuf, CBuf, CBuf, Out, Out) {
  return false;
}
inline bool attention_cudnn_bwd(const Ctx&, const AttentionShape&, CBuf, CBuf, CBuf, CBuf, CBuf, CBuf, Out,
                                Out, Out) {
  return false;
}
#endif

}  // namespace gradus::GRADUS_GPU
