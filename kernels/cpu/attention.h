// Shared by attention_plain and attention_flash: offsets of heads, tasks, and dropout of attention weights.
#pragma once
#include "kernels/cpu/io.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/random_words.h"

namespace gradus::cpu {

// The offset of head h of sample b.
inline int64_t at(const HeadLayout& l, int64_t b, int64_t h) { return b * l.batch + h * l.head; }

// Divides a share of the workspace into arrays that begin at cache lines. at == nullptr: only counts bytes.
struct Cut {
  char* at;
  int64_t bytes = 0;
  explicit Cut(void* share) : at(static_cast<char*>(share)) {}
  template <class X>
  X* take(int64_t n) {
    X* const array = at ? reinterpret_cast<X*>(at + bytes) : nullptr;
    bytes += round_up(n * int64_t(sizeof(X)), 64);
    return array;
  }
};

// The softmax of a row of scores, in groups of kGroup keys that lie `apart` elements apart.
// x *= scale for the `seen` keys that the mask does not hide; the others get -infinity, so their weights will
// be 0. Returns the maximum of all x and `most`.
template <int kGroup, class S>
[[gnu::flatten, gnu::noinline]] S scale_max(S* x, int64_t groups, int64_t apart, int64_t seen, S scale,
                                            S most) {
  S lanes[kGroup];
  std::fill_n(lanes, kGroup, most);
  for (int64_t g = 0; g < groups; ++g, x += apart) {
    const int seen_here = int(seen - g * kGroup);
#pragma omp simd
    for (int l = 0; l < kGroup; ++l) {
      x[l] = l < seen_here ? x[l] * scale : S(-INFINITY);
      lanes[l] = x[l] > lanes[l] ? x[l] : lanes[l];
    }
  }
#pragma omp simd reduction(max : most)
  for (int l = 0; l < kGroup; ++l) most = std::max(most, lanes[l]);
  return most;
}
// x = e^(x - max). Returns the sum.
template <int kGroup, class S>
[[gnu::flatten, gnu::noinline]] S exp_sum(S* x, int64_t groups, int64_t apart, S max) {
  S lanes[kGroup] = {}, sum = 0;
  for (int64_t g = 0; g < groups; ++g, x += apart)
#pragma omp simd
    for (int l = 0; l < kGroup; ++l) lanes[l] += x[l] = vexp(x[l] - max);
#pragma omp simd reduction(+ : sum)
  for (int l = 0; l < kGroup; ++l) sum += lanes[l];
  return sum;
}

// Calls f(i, share) for tasks i of [0, n). Each task runs on one thread and has `bytes` of the workspace, its
// share. Later queries see more keys, so a thread takes a new task when it has finished one.
template <class F>
void for_tasks(const Ctx& ctx, const char* op, const AttentionShape& s, int64_t n, int64_t bytes, F f) {
  const int64_t shares = std::min<int64_t>(kWorkspaceBytes / bytes, thread_count());
  check(shares > 0, op, ": sequences of ", s.T, " with heads of ", s.D, " need ", bytes,
        " bytes of workspace, which has ", kWorkspaceBytes, "; use shorter sequences or narrower heads");
  KeptError error;
#pragma omp parallel for num_threads(shares) schedule(dynamic) if (shares > 1)
  for (int64_t i = 0; i < n; ++i)
    error.of([&] { f(i, static_cast<char*>(ctx.workspace) + (shares > 1 ? thread_index() : 0) * bytes); });
  error.rethrow();
}

// Multiplies the weights of query t to keys [j0, j0 + n) by their dropout factor: 0 or 1/(1-p).
template <class S>
void drop(const Ctx& ctx, const AttentionShape& s, int64_t b, int64_t h, int64_t t, int64_t j0, int64_t n,
          S* weights) {
  const S factor = S(1) / (S(1) - S(s.dropout));
  const int64_t first = (h * s.T + t) * s.T + j0;  // index in the sample's (H, T, T) weights
  each_word(s.key, s.key.step_in(*ctx.scalars), s.key.first_sample + b, first, n,
            [p = s.dropout, factor, weights](int64_t i, int64_t count, const uint32_t* words) {
              S* const w = weights + i;
#pragma omp simd
              for (int64_t j = 0; j < count; ++j) w[j] = uniform01(words[j]) >= p ? w[j] * factor : S(0);
            });
}

}  // namespace gradus::cpu
