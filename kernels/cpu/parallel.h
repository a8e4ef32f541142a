// Threads: every CPU kernel shares the process's one OpenMP team through parallel_for.
#pragma once
#include <algorithm>
#include <cstdint>
#include <exception>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace gradus::cpu {

inline int thread_count() {
#ifdef _OPENMP
  return omp_in_parallel() ? 1 : omp_get_max_threads();
#else
  return 1;
#endif
}

inline int64_t thread_index() {  // of this thread in the innermost team
#ifdef _OPENMP
  return omp_get_thread_num();
#else
  return 0;
#endif
}

// An exception must not leave a thread: one is kept, and the caller's thread rethrows it.
class KeptError {
 public:
  template <class F>
  void of(F&& f) {
    try {
      f();
    } catch (...) {
#pragma omp critical
      error_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::exception_ptr error_;
};

// Calls f(begin, end) for pieces of [0, n), on all threads if n is large: a piece has at least `grain` items.
// The pieces depend on the number of threads, so f must compute each item independently of its piece.
template <class F>
void parallel_for(int64_t n, int64_t grain, F&& f) {
  const int64_t pieces = std::min<int64_t>(thread_count(), n / std::max<int64_t>(grain, 1));
  if (pieces <= 1) {
    if (n > 0) f(int64_t(0), n);
    return;
  }
  KeptError error;
#pragma omp parallel for num_threads(pieces) schedule(static, 1)
  for (int64_t p = 0; p < pieces; ++p) error.of([&] { f(n * p / pieces, n * (p + 1) / pieces); });
  error.rethrow();
}

}  // namespace gradus::cpu
