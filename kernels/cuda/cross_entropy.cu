#include "kernels/cuda/rows.h"

namespace gradus::GRADUS_GPU {

inline __device__ int32_t target_of(int64_t row, RowShape s, const int32_t* targets, bool may_be_elsewhere) {
  const int32_t target = targets[row];
  device_check((target >= -1 && target < s.cols) || (target == kElsewhere && may_be_elsewhere),
               "cross_entropy: target", target, "is neither a class nor -1; see row", row);
  return target;
}

// Computes row_loss (rows) and, if it is wanted, lse.
template <Write W, class T>
__global__ void row_loss_kernel(RowShape s, const T* logits, const int32_t* targets, const float* count,
                                float* row_loss, float* lse) {
  const int64_t r = blockIdx.x;
  const T* row = logits + r * s.cols;
  const int32_t target = target_of(r, s, targets, count);
  const ExpSum total = exp_sum(s.cols, row);
  if (threadIdx.x != 0) return;
  const float value = total.shift + logf(total.sum);
  row_loss[r] = target == -1 ? 0.0f : target == kElsewhere ? value : value - load(row, target);
  if (lse) store<W>(lse, r, value);
}

// The number of targets that count. All threads of the block must call it; all get the result.
inline __device__ float count_of(int64_t rows, const int32_t* targets, const float* count) {
  if (count) return *count;
  int64_t here = 0;
  for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) here += targets[r] >= 0;
  return float(block_sum(double(here)));
}

template <Write W, class T>
__global__ void count_kernel(int64_t n, const int32_t* targets, T* count) {
  const float here = count_of(n, targets, nullptr);
  if (threadIdx.x == 0) store<W>(count, 0, here);
}
void count_targets(const Ctx& ctx, int64_t n, CBuf targets, Out count) {
  check_int32("count_targets", "targets", targets);
  visit_out("count_targets", count, [&]<class T, Write W>() {
    launch(ctx, "count_targets", 1, kThreads, 0, count_kernel<W, T>, n, targets.as<int32_t>(), count.as<T>());
  });
}

// One block: each thread sums every blockDim.x-th row, in fp64 because there may be millions of rows; then
// the block adds the sums of its threads.
template <Write W>
__global__ void mean_kernel(int64_t rows, const float* row_loss, const int32_t* targets, const float* count,
                            float* loss) {
  double sum = 0;
  for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) sum += double(row_loss[r]);
  const float total = block_sum(float(sum)), by = count_of(rows, targets, count);
  if (threadIdx.x == 0) store<W>(loss, 0, total / by);
}

void cross_entropy_fwd(const Ctx& ctx, RowShape s, CBuf logits, CBuf targets, CBuf count, Out loss, Out lse) {
  check_cross_entropy_fwd(logits, targets, count, loss, lse);
  float* row_loss = static_cast<float*>(ctx.scratch);
  visit_gpu("cross_entropy_fwd", logits.t, [&]<class T>() {
    visit_write(lse.w, [&]<Write W>() {
      launch(ctx, "cross_entropy_fwd", unsigned(s.rows), row_threads(s.cols), 0, row_loss_kernel<W, T>, s,
             logits.as<T>(), targets.as<int32_t>(), count.as<float>(), row_loss, lse.as<float>());
    });
  });
  if (!loss.wanted()) return;
  visit_write(loss.w, [&]<Write W>() {
    launch(ctx, "cross_entropy_fwd", 1, kThreads, 0, mean_kernel<W>, s.rows, row_loss, targets.as<int32_t>(),
           count.as<float>(), loss.as<float>());
  });
}

// One block: *factor <- the factor of the gradient of each row's loss.
static __global__ void factor_kernel(int64_t rows, const int32_t* targets, const float* count,
                                     const float* dloss, float* factor) {
  const float by = count_of(rows, targets, count);
  if (threadIdx.x == 0) *factor = dloss[0] / by;
}
template <class T>
__global__ void cross_entropy_bwd_kernel(RowShape s, const int32_t* targets, const float* count,
                                         const float* lse, const float* factor, T* logits) {
  const int64_t r = blockIdx.x;
  T* row = logits + r * s.cols;
  const int32_t target = target_of(r, s, targets, count);
  const float shift = lse[r], by = *factor;
  for (int64_t c = threadIdx.x; c < s.cols; c += blockDim.x)
    store<Write::Set>(row, c,
                      target == -1 ? 0.0f : by * (expf(load(row, c) - shift) - (c == target ? 1.0f : 0.0f)));
}

void cross_entropy_bwd_inplace(const Ctx& ctx, RowShape s, CBuf targets, CBuf count, CBuf lse, CBuf dloss,
                               Out logits) {
  constexpr const char* op = "cross_entropy_bwd_inplace";
  check_cross_entropy_bwd_inplace(targets, count, lse, dloss, logits);
  float* const factor = static_cast<float*>(ctx.workspace);
  launch(ctx, op, 1, kThreads, 0, factor_kernel, s.rows, targets.as<int32_t>(), count.as<float>(),
         dloss.as<float>(), factor);
  visit_gpu(op, logits.t, [&]<class T>() {
    launch(ctx, op, unsigned(s.rows), row_threads(s.cols), 0, cross_entropy_bwd_kernel<T>, s,
           targets.as<int32_t>(), count.as<float>(), lse.as<float>(), factor, logits.as<T>());
  });
}

// One thread per row.
template <Write W, class T>
__global__ void cross_entropy_sums_kernel(RowShape s, const T* logits, const int32_t* targets,
                                          const float* part_lse, const float* max, float* sums) {
  const int64_t r = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (r >= s.rows) return;
  const int32_t target = target_of(r, s, targets, true);
  store<W>(sums, r, part_lse[r] == -INFINITY ? 0.0f : expf(part_lse[r] - max[r]));
  store<W>(sums, s.rows + r, target < 0 ? 0.0f : load(logits, r * s.cols + target));
}
void cross_entropy_sums(const Ctx& ctx, RowShape s, CBuf logits, CBuf targets, CBuf part_lse, CBuf max,
                        Out sums) {
  constexpr const char* op = "cross_entropy_sums";
  check_cross_entropy_sums(logits, targets, part_lse, max, sums);
  if (!sums.wanted()) return;
  visit_gpu(op, logits.t, [&]<class T>() {
    visit_write(sums.w, [&]<Write W>() {
      launch(ctx, op, blocks_for(s.rows, kThreads), kThreads, 0, cross_entropy_sums_kernel<W, T>, s,
             logits.as<T>(), targets.as<int32_t>(), part_lse.as<float>(), max.as<float>(), sums.as<float>());
    });
  });
}

template <Write W>
__global__ void lse_of_sums_kernel(int64_t rows, const int32_t* targets, const float* max, const float* sums,
                                   float* row_loss, float* lse) {
  const int64_t r = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  const float value = max[r] + logf(sums[r]);
  row_loss[r] = targets[r] < 0 ? 0.0f : value - sums[rows + r];
  if (lse) store<W>(lse, r, value);
}
void cross_entropy_of_sums(const Ctx& ctx, int64_t rows, CBuf targets, CBuf count, CBuf max, CBuf sums,
                           Out loss, Out lse) {
  constexpr const char* op = "cross_entropy_of_sums";
  check_cross_entropy_of_sums(targets, count, max, sums, loss, lse);
  float* row_loss = static_cast<float*>(ctx.scratch);
  visit_write(lse.w, [&]<Write W>() {
    launch(ctx, op, blocks_for(rows, kThreads), kThreads, 0, lse_of_sums_kernel<W>, rows,
           targets.as<int32_t>(), max.as<float>(), sums.as<float>(), row_loss, lse.as<float>());
  });
  if (!loss.wanted()) return;
  visit_write(loss.w, [&]<Write W>() {
    launch(ctx, op, 1, kThreads, 0, mean_kernel<W>, rows, row_loss, targets.as<int32_t>(), count.as<float>(),
           loss.as<float>());
  });
}

static __global__ void local_ids_kernel(int64_t n, int64_t all, int64_t first, int64_t count,
                                        const int32_t* ids, int32_t* y) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const int32_t id = ids[i];
  device_check(id >= -1 && id < all, "local_ids: id", id, "is neither in the vocabulary nor -1; see", i);
  y[i] = id == -1 ? -1 : id >= first && id < first + count ? int32_t(id - first) : kElsewhere;
}
void local_ids(const Ctx& ctx, int64_t n, int64_t all, int64_t first, int64_t count, CBuf ids, Out y) {
  check_local_ids(ids, y);
  if (!y.p) return;
  launch(ctx, "local_ids", blocks_for(n, kThreads), kThreads, 0, local_ids_kernel, n, all, first, count,
         ids.as<int32_t>(), y.as<int32_t>());
}

}  // namespace gradus::GRADUS_GPU
