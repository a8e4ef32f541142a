#include "kernels/cpu/io.h"

namespace gradus::cpu {

// The update of one matrix. A vector is a matrix of one row.
template <class A>
struct Factored {
  const ParamUpdate& u;
  Out updated;  // the master copy, or else the value
  RowShape s;
  A clip;
  A *row_sums, *row_factors, *col_factors, *partial;  // in scratch; col_factors has column sums first
};

// sums[c] += g'[c]^2; returns the sum of these squares.
template <class A>
[[gnu::flatten, gnu::noinline]] static A add_squares(int64_t n, A clip, const A* g, A* sums) {
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < n; ++c) {
    const A square = clip * g[c] * (clip * g[c]);
    sums[c] += square;
    sum += square;
  }
  return sum;
}
template <class A>
[[gnu::flatten, gnu::noinline]] static A sum_squares(int64_t n, const A* x) {
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < n; ++c) sum += x[c] * x[c];
  return sum;
}
template <class A>
[[gnu::flatten, gnu::noinline]] static A sum_squares(int64_t n, const A* x, const A* factors) {
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < n; ++c) sum += x[c] * factors[c] * (x[c] * factors[c]);
  return sum;
}
template <class A>
[[gnu::flatten, gnu::noinline]] static void subtract(int64_t n, A decay, A step, const A* g, const A* factors,
                                                     A* w) {
#pragma omp simd
  for (int64_t c = 0; c < n; ++c) w[c] = decay * w[c] - step * g[c] * factors[c];
}

// Calls f(at, n, c) for each chunk of row r: n elements from `at` on, the first in column c.
template <class F>
static void for_chunks(RowShape s, int64_t r, F f) {
  for (int64_t c = 0; c < s.cols; c += kChunk) f(r * s.cols + c, std::min(kChunk, s.cols - c), c);
}

// The root of the mean square over all elements; square(r, at, n, c, stage) returns the sum of squares over a
// chunk. Overwrites row_sums.
template <class A, class F>
static A root_mean_square(const Factored<A>& f, F square) {
  for_rows(f.s, [&](int64_t r) {
    A stage[kChunk], sum = 0;
    for_chunks(f.s, r, [&](int64_t at, int64_t n, int64_t c) { sum += square(r, at, n, c, stage); });
    f.row_sums[r] = sum;
  });
  A sum = 0;
  for (int64_t r = 0; r < f.s.rows; ++r) sum += f.row_sums[r];
  return std::sqrt(sum / A(f.u.n));
}

// The first pass over the gradient sums its squares by row and by column.
template <class A>
static void sum_rows_and_columns(const Factored<A>& f) {
  for_partitions(f.s, [&](int64_t p, int64_t begin, int64_t end) {
    A stage[kChunk], *const columns = f.partial + p * f.s.cols;
    std::fill_n(columns, f.s.cols, A(0));
    for (int64_t r = begin; r < end; ++r) {
      f.row_sums[r] = 0;
      for_chunks(f.s, r, [&](int64_t at, int64_t n, int64_t c) {
        f.row_sums[r] += add_squares(n, f.clip, read("adafactor", f.u.grad, at, n, stage), columns + c);
      });
    }
  });
  sum_partitions(cost::partitions(f.s.rows), f.s.cols, f.partial, f.col_factors);
}

// Updates the row and column means (`fresh`: the weight of the new means) and computes the factors from them:
// u[i,j] = g'[i,j] row_factors[i] col_factors[j].
template <class A>
static void find_factors(const Factored<A>& f, A fresh, A eps1) {
  A* const rows = f.u.v.template as<A>();  // nullptr for a vector, which is one row
  A* const cols = f.u.m.template as<A>();
  A mean = 0;  // of `rows`
  for (int64_t c = 0; c < f.s.cols; ++c)
    cols[c] = (1 - fresh) * cols[c] + fresh * (f.col_factors[c] / A(f.s.rows) + eps1);
  for (int64_t r = 0; rows && r < f.s.rows; ++r) {
    rows[r] = (1 - fresh) * rows[r] + fresh * (f.row_sums[r] / A(f.s.cols) + eps1);
    mean += rows[r] / A(f.s.rows);
  }
  // BEGIN SOLUTION 06.4
  for (int64_t c = 0; c < f.s.cols; ++c) f.col_factors[c] = 1 / std::sqrt(cols[c]);
  for (int64_t r = 0; r < f.s.rows; ++r) f.row_factors[r] = rows ? std::sqrt(mean / rows[r]) : A(1);
  // STUB: todo("06.4", "fill f.col_factors and f.row_factors; rows is nullptr for a vector", rows, cols, mean);
  // END SOLUTION 06.4
}

template <class A>
static void update(const Factored<A>& f, A decay, A step) {
  for_rows(f.s, [&](int64_t r) {
    A stage[2][kChunk];
    for_chunks(f.s, r, [&](int64_t at, int64_t n, int64_t c) {
      A* const w = read("adafactor", f.updated, at, n, stage[0]);
      subtract(n, decay, step * f.clip * f.row_factors[r], read("adafactor", f.u.grad, at, n, stage[1]),
               f.col_factors + c, w);
      write_back("adafactor", n, w, f.u.value, at);
    });
  });
}

template <class A>
static void adafactor_one(const Ctx& ctx, const ParamUpdate& u, const AdafactorArgs& args) {
  const UpdateScalars& scalars = *ctx.update;
  const A lr = scalars.learning_rate, updates = A(scalars.updates);
  const RowShape s{u.rows, u.n / u.rows};
  A* const scratch = static_cast<A*>(ctx.scratch);
  const Factored<A> f{.u = u,
                      .updated = u.master.wanted() ? u.master : u.value,
                      .s = s,
                      .clip = scalars.clip_factor,
                      .row_sums = scratch,
                      .row_factors = scratch + s.rows,
                      .col_factors = scratch + 2 * s.rows,
                      .partial = scratch + 2 * s.rows + s.cols};
  A step = lr;
  if (args.step_size == StepSize::Relative) {
    const A rms = root_mean_square(f, [&](int64_t, int64_t at, int64_t n, int64_t, A* stage) {
      return sum_squares(n, read("adafactor", f.updated, at, n, stage));
    });
    step = std::min(lr, 1 / std::sqrt(updates)) * std::max(A(args.eps2), rms);
  }
  sum_rows_and_columns(f);
  find_factors(f, std::pow(updates, -A(args.power)), A(args.eps1));
  const A size = root_mean_square(f, [&](int64_t r, int64_t at, int64_t n, int64_t c, A* stage) {
    const A* g = read("adafactor", u.grad, at, n, stage);
    return f.clip * f.row_factors[r] * (f.clip * f.row_factors[r]) * sum_squares(n, g, f.col_factors + c);
  });
  if (!(size <= A(args.most))) step *= A(args.most) / size;  // also if size is NaN
  update(f, u.decay ? 1 - lr * A(args.weight_decay) : A(1), step);
}

void adafactor(const Ctx& ctx, ParamList list, AdafactorArgs args) {
  check_updates("adafactor", *ctx.update);
  for (int64_t i = 0; i < list.count; ++i) {
    const ParamUpdate& u = list.items[i];
    check_adafactor(u);
    if (u.n == 0 || ctx.update->skip) continue;
    if (u.value.t == DType::F64)
      adafactor_one<double>(ctx, u, args);
    else
      adafactor_one<float>(ctx, u, args);
  }
}

}  // namespace gradus::cpu
