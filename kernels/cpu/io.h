// Shared by all CPU kernels: reading and writing elements in the accumulation type, dispatch on dtype and
// Write, checks of dtypes, and loops over rows and elements on all threads.
//
// Each loop is in its own function, which is marked [[gnu::flatten, gnu::noinline]] and takes its data by
// value. flatten inlines everything that the loop calls (a loop with calls is not vectorized, and in large
// functions compilers stop inlining); noinline keeps one copy that all threads run.
#pragma once
#include <utility>

#include "kernels/checks.h"
#include "kernels/cost.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vmath.h"

namespace gradus::cpu {

constexpr int64_t kGrain = 16384;  // elements that are worth waking a thread for
constexpr int64_t kChunk = 1024;   // elements that are staged in arrays of the accumulation type

template <class T>
acc_t<T> load(const T* p, int64_t i) {
  return acc_t<T>(p[i]);
}

// Set: p[i] <- round(r). Add: p[i] <- round(p[i] + r).
template <Write W, class T>
void store(T* p, int64_t i, acc_t<T> r) {
  if constexpr (W == Write::Add) r += acc_t<T>(p[i]);
  p[i] = T(r);
}

// Calls f.operator()<T, W>() for an output that is wanted.
template <class F>
void visit_out(const char* op, Out y, F f) {
  if (!y.wanted()) return;
  visit_float(op, y.t,
              [&]<class T>() { visit_write(y.w, [&]<Write W>() { f.template operator()<T, W>(); }); });
}

// y = x, in y's dtype.
template <Write W, class X, class Y>
[[gnu::flatten, gnu::noinline]] void copy_row(int64_t cols, const X* x, Y* y) {
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) store<W>(y, c, acc_t<Y>(load(x, c)));
}

// Writes n numbers of the accumulation type A to an output of any floating dtype, from element `at` on.
template <class A>
void write(const char* op, int64_t n, const A* from, Out y, int64_t at) {
  visit_out(op, y, [&]<class T, Write W>() { copy_row<W>(n, from, y.as<T>() + at); });
}

// The elements x[at, at + n) as numbers of type A: in x itself if x has that type, else converted into
// `stage`. For kernels that mix dtypes; together with write_back, also for kernels that update in place.
template <class A, class T>
[[gnu::flatten, gnu::noinline]] void read_chunk(int64_t n, const T* from, A* to) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = A(load(from, i));
}
template <class A>
A* read(const char* op, Out x, int64_t at, int64_t n, A* stage) {
  if (x.t == acc_dtype<A>) return x.as<A>() + at;
  visit_float(op, x.t, [&]<class T>() { read_chunk(n, x.as<T>() + at, stage); });
  return stage;
}
template <class A>
const A* read(const char* op, CBuf x, int64_t at, int64_t n, A* stage) {
  return read(op, Out{const_cast<void*>(x.p), x.t, Write::Set}, at, n, stage);
}
template <class A>
void write_back(const char* op, int64_t n, const A* chunk, Out x, int64_t at) {
  x.w = Write::Set;
  if (chunk != x.as<A>() + at) write(op, n, chunk, x, at);
}

// y[i] = f(x[i]...), element by element on all threads, if y is wanted; without any x, y[i] = f(i). f takes
// and returns numbers of the accumulation type, and holds its data by value.
template <Write W, class T, class F, class... X>
[[gnu::flatten, gnu::noinline]] void map_piece(int64_t begin, int64_t end, T* y, F f, const X*... x) {
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    if constexpr (sizeof...(X) == 0)
      store<W>(y, i, f(i));
    else
      store<W>(y, i, f(load(x, i)...));
  }
}
template <class T, class F, class... X>
void map_as(int64_t n, Out y, F f, const X*... x) {
  if (!y.wanted()) return;
  visit_write(y.w, [&]<Write W>() {
    parallel_for(n, kGrain,
                 [&](int64_t begin, int64_t end) { map_piece<W>(begin, end, y.as<T>(), f, x...); });
  });
}
// For inputs that all have the dtype of y.
template <class F, size_t N>
void map(const char* op, int64_t n, Out y, const NamedBuffer (&x)[N], F f) {
  for (const NamedBuffer& input : x) check_dtype(op, y.t, {input});
  visit_float(op, y.t, [&]<class T>() {
    [&]<size_t... I>(std::index_sequence<I...>) { map_as<T>(n, y, f, static_cast<const T*>(x[I].p)...); }
    (std::make_index_sequence<N>());
  });
}

// sum[c] += row[c]: one more row of a sum over rows.
template <class T>
[[gnu::flatten, gnu::noinline]] void add_row(int64_t cols, const T* row, acc_t<T>* sum) {
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) sum[c] += load(row, c);
}

// Calls f(row) for every row, on all threads.
template <class F>
void for_rows(RowShape s, F f) {
  parallel_for(s.rows, kGrain / std::max<int64_t>(s.cols, 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) f(r);
  });
}

// Calls f(p, first row, last row + 1) for each of the fixed partitions of the rows, on all threads. Sums over
// rows are computed within each partition, then over the partitions in order, so they are the same for any
// number of threads.
template <class F>
void for_partitions(RowShape s, F f) {
  const int64_t P = cost::partitions(s.rows);
  const int64_t grain = kGrain * P / std::max<int64_t>(s.rows * s.cols, 1) + 1;
  parallel_for(P, grain, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) f(p, s.rows * p / P, s.rows * (p + 1) / P);
  });
}

// sums[c] <- sum over partitions of partial[p][c], in the order of p.
template <class A>
void sum_partitions(int64_t partitions, int64_t cols, const A* partial, A* sums) {
  for (int64_t c = 0; c < cols; ++c) sums[c] = 0;
  for (int64_t p = 0; p < partitions; ++p)
    for (int64_t c = 0; c < cols; ++c) sums[c] += partial[p * cols + c];
}

}  // namespace gradus::cpu
