// What every CPU kernel shares: reading and writing elements in the accumulation type, dispatch on dtype and
// Write.
#pragma once
#include "kernels/cost.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vmath.h"

namespace gradus::cpu {

constexpr int64_t kGrain = 16384;  // elements that are worth waking a thread for

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

// Calls f.operator()<W>() with the Write as a constant, so that loops have no branch.
template <class F>
void visit_write(Write w, F&& f) {
  if (w == Write::Set)
    f.template operator()<Write::Set>();
  else
    f.template operator()<Write::Add>();
}

// The one dtype T of a call: every buffer that is present must have it.
inline void check_dtype(const char* op, DType expected, DType t, const void* p, const char* what) {
  check(p == nullptr || t == expected, op, ": ", what, " is ", name_of(t), " where ", name_of(expected),
        " is needed; cast it first");
}

// Parameter gradients may be T or fp32; statistics are fp32, or fp64 when T is.
template <class T>
void check_stats(const char* op, DType t, const void* p) {
  check_dtype(op, dtype_of<acc_t<T>>(), t, p, "a statistic");
}

// Writes a reduced row of sums to an output of any floating dtype.
template <class A>
void store_sums(const char* op, int64_t n, const A* sums, Out y) {
  visit_float(op, y.t, [&]<class T>() {
    visit_write(y.w, [&]<Write W>() {
      for (int64_t i = 0; i < n; ++i) store<W>(y.as<T>(), i, acc_t<T>(sums[i]));
    });
  });
}

// sums[c] <- sum over partitions of partial[p][c], in the order of p.
template <class A>
void sum_partitions(int64_t partitions, int64_t cols, const A* partial, A* sums) {
  for (int64_t c = 0; c < cols; ++c) sums[c] = 0;
  for (int64_t p = 0; p < partitions; ++p)
    for (int64_t c = 0; c < cols; ++c) sums[c] += partial[p * cols + c];
}

// y[i] = f(i), element by element on all threads; f returns the accumulation type.
template <class T, class F>
void map(int64_t n, Out y, F f) {
  visit_write(y.w, [&]<Write W>() {
    parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
      T* out = y.as<T>();
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) store<W>(out, i, f(i));
    });
  });
}

}  // namespace gradus::cpu
