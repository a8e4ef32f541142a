#include "kernels/cuda/param_list.h"
#include "kernels/cuda/rows.h"

namespace gradus::GRADUS_GPU {

// The update of one matrix. Its passes store their results in scratch, after the partial sums of the columns.
// A vector is a matrix of one row.
struct Factored {
  ParamUpdate u;
  RowShape s;
  AdafactorArgs args;
  const UpdateScalars* scalars;
  float *row_sums, *row_factors, *col_factors, *step;

  __device__ float gradient(int64_t i) const {
    float g = 0;
    visit_in_kernel(u.grad.t, [&]<class T>() { g = load(u.grad.as<T>(), i); });
    return scalars->clip_factor * g;
  }
  __device__ Out updated() const { return u.master.p ? u.master : u.value; }
  __device__ float weight(int64_t i) const {
    float w = 0;
    visit_in_kernel(updated().t, [&]<class T>() { w = load(updated().template as<T>(), i); });
    return w;
  }
  __device__ float rate() const { return scalars->learning_rate; }
  // The new state of a row or column whose squares have this mean.
  __device__ float renewed(float state, float mean) const {
    const float fresh = powf(float(scalars->updates), -args.power);
    return (1.0f - fresh) * state + fresh * (mean + args.eps1);
  }
};

// row_sums[r] <- the sum of the squares of f over row r.
struct OfWeights {
  __device__ float operator()(const Factored& x, int64_t r, int64_t c) const {
    return x.weight(r * x.s.cols + c);
  }
};
struct OfGradient {
  __device__ float operator()(const Factored& x, int64_t r, int64_t c) const {
    return x.gradient(r * x.s.cols + c);
  }
};
struct OfUpdate {
  __device__ float operator()(const Factored& x, int64_t r, int64_t c) const {
    return x.gradient(r * x.s.cols + c) * x.row_factors[r] * x.col_factors[c];
  }
};
template <class F>
__global__ void row_squares_kernel(Factored x, F f) {
  float sum = 0;
  for (int64_t c = threadIdx.x; c < x.s.cols; c += blockDim.x) {
    const float v = f(x, blockIdx.x, c);
    sum += v * v;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) x.row_sums[blockIdx.x] = sum;
}

struct ColumnSquares {
  static constexpr int kSums = 1;
  Factored x;
  __device__ void operator()(int64_t r, int64_t c, float* sums) const {
    const float g = x.gradient(r * x.s.cols + c);
    sums[0] += g * g;
  }
};

// The next kernels have one block each. The mean of all squares is the sum of row_sums / n.
static __device__ float mean_square(const Factored& x) {
  float sum = 0;
  for (int64_t r = threadIdx.x; r < x.s.rows; r += kThreads) sum += x.row_sums[r];
  return block_sum(sum) / float(x.u.n);
}
static __global__ void first_step_kernel(Factored x) {
  if (x.scalars->skip) return;
  const bool relative = x.args.step_size == StepSize::Relative;
  const float rms = relative ? sqrtf(mean_square(x)) : 0.0f;
  if (threadIdx.x != 0) return;
  device_check(x.scalars->updates > 0, "adafactor: the number of updates is", x.scalars->updates,
               "; the first is", 1);
  const float bound = fminf(x.rate(), 1.0f / sqrtf(float(x.scalars->updates)));
  *x.step = relative ? fmaxf(x.args.eps2, rms) * bound : x.rate();
}
static __global__ void factors_kernel(Factored x, TotalSum columns) {
  if (x.scalars->skip) return;
  float *const cols = x.u.m.as<float>(), *const rows = x.u.v.as<float>(), sum = 0;
  for (int64_t c = threadIdx.x; c < x.s.cols; c += kThreads) {
    cols[c] = x.renewed(cols[c], columns(c) / float(x.s.rows));
    x.col_factors[c] = 1.0f / sqrtf(cols[c]);
  }
  for (int64_t r = threadIdx.x; rows && r < x.s.rows; r += kThreads) {
    rows[r] = x.renewed(rows[r], x.row_sums[r] / float(x.s.cols));
    sum += rows[r];
  }
  const float mean = block_sum(sum) / float(x.s.rows);
  for (int64_t r = threadIdx.x; r < x.s.rows; r += kThreads)
    x.row_factors[r] = rows ? sqrtf(mean / rows[r]) : 1.0f;
}
static __global__ void last_step_kernel(Factored x) {
  const float size = sqrtf(mean_square(x));
  if (threadIdx.x == 0 && !(size <= x.args.most)) *x.step *= x.args.most / size;  // also if it is NaN
}

static __global__ void update_kernel(Factored x) {
  if (x.scalars->skip) return;
  const int64_t r = blockIdx.x;
  const float decay = x.u.decay ? 1.0f - x.rate() * x.args.weight_decay : 1.0f;
  for (int64_t c = threadIdx.x; c < x.s.cols; c += blockDim.x) {
    const int64_t i = r * x.s.cols + c;
    const float w = decay * x.weight(i) - *x.step * OfUpdate()(x, r, c);
    if (x.u.master.p) store<Write::Set>(x.u.master.as<float>(), i, w);
    visit_in_kernel(x.u.value.t, [&]<class T>() { store<Write::Set>(x.u.value.as<T>(), i, w); });
  }
}

static void update_one(const Ctx& ctx, const ParamUpdate& u, const AdafactorArgs& args) {
  constexpr const char* op = "adafactor";
  const RowShape s{u.rows, u.n / u.rows};
  float* const partial = static_cast<float*>(ctx.scratch);
  const TotalSum columns{partial, cost::partitions(s.rows), s.cols};
  float* const behind = partial + columns.partitions * s.cols;
  const Factored x{
      u, s, args, ctx.update, behind, behind + s.rows, behind + 2 * s.rows, behind + 2 * s.rows + s.cols};
  const unsigned rows = unsigned(s.rows), threads = row_threads(s.cols);
  if (args.step_size == StepSize::Relative)
    launch(ctx, op, rows, threads, 0, row_squares_kernel<OfWeights>, x, OfWeights());
  launch(ctx, op, 1, kThreads, 0, first_step_kernel, x);
  launch(ctx, op, rows, threads, 0, row_squares_kernel<OfGradient>, x, OfGradient());
  partial_sums(ctx, op, s, ColumnSquares{x});
  launch(ctx, op, 1, kThreads, 0, factors_kernel, x, columns);
  launch(ctx, op, rows, threads, 0, row_squares_kernel<OfUpdate>, x, OfUpdate());
  launch(ctx, op, 1, kThreads, 0, last_step_kernel, x);
  launch(ctx, op, rows, threads, 0, update_kernel, x);
}

void adafactor(const Ctx& ctx, ParamList list, AdafactorArgs args) {
  for (int64_t i = 0; i < list.count; ++i) {
    const ParamUpdate& u = list.items[i];
    check_adafactor(u);
    visit_gpu("adafactor", u.value.t, [&]<class T>() {});  // rejects fp64
    if (u.n > 0) update_one(ctx, u, args);
  }
}

}  // namespace gradus::GRADUS_GPU
