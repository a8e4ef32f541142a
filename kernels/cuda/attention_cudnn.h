// attention_flash by cuDNN, where the program was built with NVIDIA's front end for it (CUDNN_FRONTEND) and
// finds the library when it runs. Otherwise our own kernels compute the same (attention_flash.cu).
#pragma once
#include <string>

#include "kernels/kernels.h"

namespace gradus {

namespace no_cudnn {
inline bool cudnn_takes(auto&&...) { return false; }
inline bool cudnn_attention_fwd(auto&&...) { return false; }
inline bool cudnn_attention_bwd(auto&&...) { return false; }
inline std::string cudnn_problem() { return "this program was built without cuDNN (CUDNN_FRONTEND=FOLDER)"; }
inline std::string cudnn_graph_problem(auto&&...) { return cudnn_problem(); }
}  // namespace no_cudnn

namespace emu {
using namespace no_cudnn;
}

namespace cuda {
#ifndef GRADUS_CUDNN
using namespace no_cudnn;
#else
// Whether cuDNN computes attention of this shape: in 16 bits, without dropout (whose masks would be others
// than on every other device), heads of up to 128 dimensions, these and all strides multiples of 8; backward
// if T is a multiple of 128.
bool cudnn_takes(const AttentionShape&, DType, bool backward);

// They return false, and have done nothing, if cuDNN cannot compute this call: it does not take the shape, an
// output is not wanted or is Write::Add, a pointer is no multiple of 16 bytes, the GPU is older than Ampere,
// one head needs more than the device's workspace. Weights, and in backward dS, are rounded to 16 bits before
// they are multiplied.
bool cudnn_attention_fwd(const Ctx&, const AttentionShape&, CBuf q, CBuf k, CBuf v, Out y, Out lse);
bool cudnn_attention_bwd(const Ctx&, const AttentionShape&, CBuf q, CBuf k, CBuf v, CBuf y, CBuf lse, CBuf dy,
                         Out dq, Out dk, Out dv);

// Why cuDNN is not used at all; "" if it is.
const std::string& cudnn_problem();

// What cuDNN's front end says against the graph of an attention, on GPUs of compute capability sm / 10; "" if
// nothing. Needs no GPU.
std::string cudnn_graph_problem(const AttentionShape&, DType, bool backward, int sm);

#endif
}  // namespace cuda

}  // namespace gradus
