#include "kernels/cuda/rows.h"

namespace gradus::GRADUS_GPU {

inline __device__ int32_t target_of(int64_t row, RowShape s, const int32_t* targets) {
  const int32_t target = targets[row];
  device_check(target >= 0 && target < s.cols, "cross_entropy: target", target, "is not a class; see row",
               row);
  return target;
}

// row_loss (rows) and, where it is wanted, lse.
template <Write W, class T>
__global__ void row_loss_kernel(RowShape s, const T* logits, const int32_t* targets, float* row_loss,
                                float* lse) {
  const int64_t r = blockIdx.x;
  const T* row = logits + r * s.cols;
  const int32_t target = target_of(r, s, targets);
  const ExpSum total = exp_sum(s.cols, row);
  if (threadIdx.x != 0) return;
  const float value = total.shift + logf(total.sum);
  row_loss[r] = value - load(row, target);
  if (lse) store<W>(lse, r, value);
}

// One block: each thread sums every blockDim.x-th row, in fp64 because there may be millions, then the block
// sums the threads.
template <Write W>
__global__ void mean_kernel(int64_t rows, const float* row_loss, float* loss) {
  double sum = 0;
  for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) sum += double(row_loss[r]);
  const float total = block_sum(float(sum));
  if (threadIdx.x == 0) store<W>(loss, 0, total / float(rows));
}

void cross_entropy_fwd(const Ctx& ctx, RowShape s, CBuf logits, CBuf targets, Out loss, Out lse) {
  check_cross_entropy_fwd(logits, targets, loss, lse);
  float* row_loss = static_cast<float*>(ctx.scratch);
  visit_gpu("cross_entropy_fwd", logits.t, [&]<class T>() {
    visit_write(lse.w, [&]<Write W>() {
      launch(ctx, "cross_entropy_fwd", unsigned(s.rows), row_threads(s.cols), 0, row_loss_kernel<W, T>, s,
             logits.as<T>(), targets.as<int32_t>(), row_loss, lse.as<float>());
    });
  });
  if (!loss.wanted()) return;
  visit_write(loss.w, [&]<Write W>() {
    launch(ctx, "cross_entropy_fwd", 1, kThreads, 0, mean_kernel<W>, s.rows, row_loss, loss.as<float>());
  });
}

template <class T>
__global__ void cross_entropy_bwd_kernel(RowShape s, const int32_t* targets, const float* lse,
                                         const float* dloss, T* logits) {
  const int64_t r = blockIdx.x;
  T* row = logits + r * s.cols;
  const int32_t target = target_of(r, s, targets);
  const float shift = lse[r], factor = dloss[0] / float(s.rows);
  for (int64_t c = threadIdx.x; c < s.cols; c += blockDim.x)
    store<Write::Set>(row, c, factor * (expf(load(row, c) - shift) - (c == target ? 1.0f : 0.0f)));
}

void cross_entropy_bwd_inplace(const Ctx& ctx, RowShape s, CBuf targets, CBuf lse, CBuf dloss, Out logits) {
  check_cross_entropy_bwd_inplace(targets, lse, dloss, logits);
  visit_gpu("cross_entropy_bwd_inplace", logits.t, [&]<class T>() {
    launch(ctx, "cross_entropy_bwd_inplace", unsigned(s.rows), row_threads(s.cols), 0,
           cross_entropy_bwd_kernel<T>, s, targets.as<int32_t>(), lse.as<float>(), dloss.as<float>(),
           logits.as<T>());
  });
}

}  // namespace gradus::GRADUS_GPU
