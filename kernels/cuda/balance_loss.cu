#include "kernels/cuda/experts.h"
#include "kernels/cuda/rows.h"

namespace gradus::GRADUS_GPU {

// Writes f (B, E) to scratch. One warp per sequence and expert.
static __global__ void shares_of_choices_kernel(ExpertShape s, const int32_t* experts, float* shares) {
  const int64_t row = item_of_warp(), b = row / s.E, e = row % s.E, choices = s.T * s.chosen;
  if (row >= s.B * s.E) return;
  int32_t here = 0;
  for (int64_t i = lane_of_warp(); i < choices; i += kWarp)
    here += expert_at(b * choices + i, s, experts) == e;
  here = warp_sum(here);
  if (lane_of_warp() == 0) shares[row] = float(here) / float(choices);
}
static float* shares_of_choices(const Ctx& ctx, const char* op, const ExpertShape& s, CBuf experts) {
  float* const shares = static_cast<float*>(ctx.scratch);
  launch_warps(ctx, op, s.B * s.E, shares_of_choices_kernel, s, experts.as<int32_t>(), shares);
  return shares;
}

// Softmax of a token's logits is p[e] = e^(x[e] - shift) per_sum.
struct Balance {
  float shift, per_sum, share;  // share: sum of f[e] p[e]
};
// All lanes of the token's warp must call it; all get the result.
template <class T>
__device__ Balance balance_of(int64_t E, const T* x, const float* shares) {
  float max = -INFINITY, sum = 0, share = 0;
  for (int64_t e = lane_of_warp(); e < E; e += kWarp) max = fmaxf(max, load(x, e));
  const float shift = warp_max(max);
  for (int64_t e = lane_of_warp(); e < E; e += kWarp) {
    const float exp = shifted_exp(load(x, e), shift);
    sum += exp, share += shares[e] * exp;
  }
  sum = warp_sum(sum), share = warp_sum(share);
  return {shift, 1.0f / sum, share / sum};
}

template <class T>
__global__ void balance_loss_of_tokens_kernel(ExpertShape s, const T* logits, const float* shares,
                                              float* of_token) {
  const int64_t t = item_of_warp();
  if (t >= s.tokens()) return;
  const Balance balance = balance_of(s.E, logits + t * s.E, shares + t / s.T * s.E);
  if (lane_of_warp() == 0) of_token[t] = balance.share;
}
// One block, which sums in fp64, as for cross_entropy.
template <Write W>
__global__ void balance_loss_kernel(ExpertShape s, const float* of_token, const float* count, float alpha,
                                    float* loss) {
  double sum = 0;
  for (int64_t t = threadIdx.x; t < s.tokens(); t += blockDim.x) sum += double(of_token[t]);
  sum = block_sum(sum);
  const double by = count ? double(*count) : double(s.tokens());
  if (threadIdx.x == 0)
    store<W>(loss, 0, s.tokens() == 0 ? 0.0f : float(double(alpha) * double(s.E) / by * sum));
}

void balance_loss_fwd(const Ctx& ctx, const ExpertShape& s, CBuf logits, CBuf experts, CBuf count, Out loss,
                      float alpha) {
  constexpr const char* op = "balance_loss_fwd";
  check_balance_loss_fwd(s, logits, experts, count, loss);
  if (!loss.wanted()) return;
  const float* const shares = shares_of_choices(ctx, op, s, experts);
  float* const of_token = static_cast<float*>(ctx.scratch) + s.B * s.E;
  visit_gpu(op, logits.t, [&]<class T>() {
    launch_warps(ctx, op, s.tokens(), balance_loss_of_tokens_kernel<T>, s, logits.as<T>(), shares, of_token);
  });
  visit_write(loss.w, [&]<Write W>() {
    launch(ctx, op, 1, kThreads, 0, balance_loss_kernel<W>, s, of_token, count.as<float>(), alpha,
           loss.as<float>());
  });
}

template <Write W, class T>
__global__ void balance_loss_bwd_kernel(ExpertShape s, const T* logits, const float* shares,
                                        const float* count, const float* dloss, float alpha, T* dlogits) {
  const int64_t t = item_of_warp(), row = t * s.E;
  if (t >= s.tokens()) return;
  const float* const of_sequence = shares + t / s.T * s.E;
  const Balance balance = balance_of(s.E, logits + row, of_sequence);
  const float factor = dloss[0] * alpha * float(s.E) / (count ? *count : float(s.tokens()));
  for (int64_t e = lane_of_warp(); e < s.E; e += kWarp) {
    const float p = shifted_exp(load(logits, row + e), balance.shift) * balance.per_sum;
    store<W>(dlogits, row + e, factor * p * (of_sequence[e] - balance.share));
  }
}

void balance_loss_bwd(const Ctx& ctx, const ExpertShape& s, CBuf logits, CBuf experts, CBuf count, CBuf dloss,
                      Out dlogits, float alpha) {
  constexpr const char* op = "balance_loss_bwd";
  check_balance_loss_bwd(s, logits, experts, count, dloss, dlogits);
  visit_out(op, dlogits, [&]<class T, Write W>() {
    const float* const shares = shares_of_choices(ctx, op, s, experts);
    launch_warps(ctx, op, s.tokens(), balance_loss_bwd_kernel<W, T>, s, logits.as<T>(), shares,
                 count.as<float>(), dloss.as<float>(), alpha, dlogits.as<T>());
  });
}

}  // namespace gradus::GRADUS_GPU
