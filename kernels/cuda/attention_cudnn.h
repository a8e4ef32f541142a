// attention_flash by cuDNN, if the program was built with NVIDIA's front end for cuDNN (CUDNN_FRONTEND) and
// finds the library at run time. Otherwise our own kernels compute the same (attention_flash.cu).
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
// Whether cuDNN computes attention of this shape. It takes 16-bit dtypes, no dropout (its masks would differ
// from those of all other devices), and heads of up to 128 dimensions. The dimensions and all strides must be
// multiples of 8, and for backward T must be a multiple of 128.
bool cudnn_takes(const AttentionShape&, DType, bool backward);

// These return false and do nothing if cuDNN cannot compute the call: cudnn_takes() is false, an output is
// not wanted or is Write::Add, a pointer is not a multiple of 16 bytes, the GPU is older than Ampere, or one
// head needs more than the device's workspace. cuDNN rounds weights, and in backward dS, to 16 bits before it
// multiplies them.
bool cudnn_attention_fwd(const Ctx&, const AttentionShape&, CBuf q, CBuf k, CBuf v, Out y, Out lse);
bool cudnn_attention_bwd(const Ctx&, const AttentionShape&, CBuf q, CBuf k, CBuf v, CBuf y, CBuf lse, CBuf dy,
                         Out dq, Out dk, Out dv);

// The reason why cuDNN is never used; "" if it is used.
const std::string& cudnn_problem();

// Why cuDNN's front end rejects the graph of an attention on GPUs of compute capability sm / 10; "" if it
// accepts the graph. Needs no GPU.
std::string cudnn_graph_problem(const AttentionShape&, DType, bool backward, int sm);

#endif
}  // namespace cuda

}  // namespace gradus
