// Rung C3. It has a file of its own because exercise 01.2 also runs its loops on numbers that count how often
// they are read from memory.
#pragma once
#include <algorithm>
#include <cstdint>

namespace gradus {

// Cache blocking: a block of B (block x block elements) stays in the cache while the loops read `block` rows
// of A. In and Out are pointers to floats, or types that behave like such pointers.
template <class In, class Out>
void blocked(int64_t n, int64_t block, In a, In b, Out c) {
#pragma omp parallel for schedule(dynamic)
  for (int64_t i0 = 0; i0 < n; i0 += block) {
    const int64_t i1 = std::min(i0 + block, n);
    std::fill(c + i0 * n, c + i1 * n, 0.0f);
    for (int64_t k0 = 0; k0 < n; k0 += block)
      for (int64_t j0 = 0; j0 < n; j0 += block) {
        const int64_t k1 = std::min(k0 + block, n), j1 = std::min(j0 + block, n);
        for (int64_t i = i0; i < i1; ++i)
          for (int64_t k = k0; k < k1; ++k)
            for (int64_t j = j0; j < j1; ++j) c[i * n + j] += a[i * n + k] * b[k * n + j];
      }
  }
}

}  // namespace gradus
