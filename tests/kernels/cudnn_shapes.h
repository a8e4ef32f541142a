// Attention as the transformer calls it, for the tests of cuDNN's attention.
#pragma once
#include "kernels/cuda/attention_cudnn.h"

namespace gradus {

inline AttentionShape packed(int64_t B, int64_t H, int64_t KV, int64_t T, int64_t D, Mask mask) {
  const int64_t row = (H + 2 * KV) * D;
  return {.B = B,
          .H = H,
          .KV = KV,
          .T = T,
          .D = D,
          .qkv = {T * row, D, row},
          .y = {T * H * D, D, H * D},
          .scale = 0.125f,
          .mask = mask};
}

}  // namespace gradus
