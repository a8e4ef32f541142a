// Matrices in fp64: products, and the Newton-Schulz recurrence of src/optim/muon.h.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "kernels/dtype.h"
#include "src/core/rng.h"

namespace gradus {

struct Matrix {
  int64_t rows, cols;
  std::vector<double> x;
  double& operator()(int64_t i, int64_t j) { return x[i * cols + j]; }
  double operator()(int64_t i, int64_t j) const { return x[i * cols + j]; }

  static Matrix random(int64_t rows, int64_t cols, uint64_t stream) {
    Rng rng(17, stream);
    Matrix m{rows, cols, std::vector<double>(rows * cols)};
    for (double& e : m.x) e = rng.normal();
    return m;
  }
  Matrix transposed() const {
    Matrix t{cols, rows, std::vector<double>(x.size())};
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) t(j, i) = (*this)(i, j);
    return t;
  }
  // Orthonormal columns, by Gram-Schmidt, each orthogonalized twice.
  static Matrix orthonormal(int64_t rows, int64_t cols, uint64_t stream) {
    Matrix m = random(rows, cols, stream);
    for (int64_t j = 0; j < cols; ++j)
      for (int pass = 0; pass < 2; ++pass)
        for (int64_t k = 0; k <= j; ++k) {
          double dot = 0;
          for (int64_t i = 0; i < rows; ++i) dot += m(i, j) * m(i, k);
          for (int64_t i = 0; i < rows; ++i)
            m(i, j) = k < j ? m(i, j) - dot * m(i, k) : m(i, j) / std::sqrt(dot);
        }
    return m;
  }
};

// Sum: the type of sums.
template <class Sum = double>
Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c{a.rows, b.cols, std::vector<double>(a.rows * b.cols)};
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < b.cols; ++j) {
      Sum sum = 0;
      for (int64_t k = 0; k < a.cols; ++k) sum += Sum(a(i, k)) * Sum(b(k, j));
      c(i, j) = double(sum);
    }
  return c;
}
inline Matrix operator*(const Matrix& a, const Matrix& b) { return product(a, b); }
inline Matrix combined(double p, const Matrix& a, double q, const Matrix& b) {  // p a + q b
  Matrix c = a;
  for (size_t i = 0; i < c.x.size(); ++i) c.x[i] = p * a.x[i] + q * b.x[i];
  return c;
}
inline double frobenius(const Matrix& a) {
  double sum = 0;
  for (const double e : a.x) sum += e * e;
  return std::sqrt(sum);
}
inline double distance(const Matrix& a, const Matrix& b) { return frobenius(combined(1, a, -1, b)); }
inline Matrix normalized(Matrix a) {
  const double norm = frobenius(a);
  for (double& e : a.x) e /= norm;
  return a;
}
inline Matrix rounded_to(DType t, Matrix a) {
  visit_float("test", t, [&]<class T>() {
    for (double& e : a.x) e = double(acc_t<T>(std::is_same_v<T, double> ? T(e) : T(float(e))));
  });
  return a;
}

using Coefficients = std::array<double, 3>;
constexpr Coefficients kCoefficients = {3.4445, -4.775, 2.0315};
// X <- a X + (b A + c A^2) X, A = X X^T. t: the dtype of results between products; if it is not fp64, sums
// are in fp32.
inline Matrix recurrence(Matrix x, int iterations, const Coefficients& abc = kCoefficients,
                         DType t = DType::F64) {
  const auto times = [&](const Matrix& a, const Matrix& b) {
    return rounded_to(t, t == DType::F64 ? product(a, b) : product<float>(a, b));
  };
  for (int k = 0; k < iterations; ++k) {
    const Matrix gram = times(x, x.transposed()),
                 b = rounded_to(t, combined(abc[1], gram, abc[2], times(gram, gram)));
    x = rounded_to(t, combined(abc[0], x, 1, times(b, x)));
  }
  return x;
}
// The allowed distance from the recurrence for a computation in t: 4 times the distance of this computation
// in t, because a different order of the sums gives different errors of about the same size; plus two
// roundings of each X, in case these errors cancel. (The bound for the worst case, 4^iterations roundings, is
// useless in bf16.)
inline double recurrence_error(const Matrix& x, DType t, int iterations) {
  const Matrix exact = recurrence(x, iterations);
  const double eps = t == DType::F64 ? 0x1p-53 : t == DType::F32 ? 0x1p-24 : 0x1p-8;
  return 4 * distance(exact, recurrence(x, iterations, kCoefficients, t)) +
         2 * iterations * eps * frobenius(exact);
}

}  // namespace gradus
