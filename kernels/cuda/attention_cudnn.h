// attention_flash by cuDNN, where the program was built with NVIDIA's front end for it (CUDNN_FRONTEND) and
// finds the library when it runs. Otherwise our own kernels compute the same (attention_flash.cu).
#pragma once
#include <string>

#include "kernels/kernels.h"

namespace gradus::cuda {

// Whether cuDNN has done it. It does not: fp32, dropout (whose masks would be others than on every other
// device), Write::Add, an output that is not wanted, heads of more than 128 dimensions, pointers or strides
// that are no multiple of 16 bytes, a GPU before Ampere, one head that needs more than the device's
// workspace. cuDNN rounds the weights, and in backward dS, to the 16 bits of its inputs before it multiplies
// by them.
bool cudnn_attention_fwd(const Ctx&, const AttentionShape&, CBuf q, CBuf k, CBuf v, Out y, Out lse);
bool cudnn_attention_bwd(const Ctx&, const AttentionShape&, CBuf q, CBuf k, CBuf v, CBuf y, CBuf lse, CBuf dy,
                         Out dq, Out dk, Out dv);

// Why cuDNN is not used at all; "" if it is.
std::string cudnn_problem();

// What cuDNN's front end says against the graph of an attention, on GPUs of compute capability sm / 10; "" if
// nothing. Needs no GPU.
std::string cudnn_graph_problem(const AttentionShape&, DType, bool backward, int sm);

}  // namespace gradus::cuda

namespace gradus::emu {
inline bool cudnn_attention_fwd(auto&&...) { return false; }
inline bool cudnn_attention_bwd(auto&&...) { return false; }
}  // namespace gradus::emu
