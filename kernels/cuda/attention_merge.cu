#include "kernels/cuda/attention.h"

namespace gradus::GRADUS_GPU {

// One warp per query.
template <class T>
__global__ void attention_merge_kernel(AttentionShape s, const T* y, const float* lse, float* sum,
                                       float* total) {
  const int64_t i = int64_t(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (i >= s.B * s.H * s.T) return;
  const int64_t b = i / s.T / s.H, h = i / s.T % s.H, t = i % s.T;
  const float before = total[i], here = lse[i], most = before > here ? before : here;
  if (here == -INFINITY) return;  // the whole warp does
  const float both = most + logf(expf(before - most) + expf(here - most));
  const float keep = expf(before - both), take = expf(here - both);
  const int64_t to = b * s.y.batch + h * s.y.head + t * s.y.time, from = ((b * s.T + t) * s.H + h) * s.D;
  __syncwarp();  // all lanes have read the total
  for (int64_t d = threadIdx.x % kWarp; d < s.D; d += kWarp)
    sum[to + d] = keep * sum[to + d] + take * load(y, from + d);
  if (threadIdx.x % kWarp == 0) total[i] = both;
}

void attention_merge_inplace(const Ctx& ctx, const AttentionShape& s, CBuf y, CBuf lse, Out sum, Out total) {
  constexpr const char* op = "attention_merge_inplace";
  check_attention_merge_inplace(s, y, lse, sum, total);
  visit_gpu(op, y.t, [&]<class T>() {
    launch(ctx, op, blocks_for(s.B * s.H * s.T, kThreads / kWarp), kThreads, 0, attention_merge_kernel<T>, s,
           y.as<T>(), lse.as<float>(), sum.as<float>(), total.as<float>());
  });
}

}  // namespace gradus::GRADUS_GPU
