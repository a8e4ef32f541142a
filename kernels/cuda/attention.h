// Shared by attention_plain and attention_flash: a block's place, and the dropout of attention weights.
#pragma once
#include "kernels/cuda/gpu.h"
#include "kernels/philox.h"

namespace gradus::GRADUS_GPU {

// A block's sample and head, and its rows [first, end) of that head. `heads` is s.H if a block owns queries,
// and s.KV if it owns keys. All blocks are along grid.x, because grid.y and grid.z have lower limits.
struct Place {
  int64_t b, h, first, end;
  __device__ Place(const AttentionShape& s, int64_t heads, int64_t rows) {
    const int64_t tiles = (s.T + rows - 1) / rows, head = blockIdx.x / tiles;
    b = head / heads, h = head % heads;
    first = blockIdx.x % tiles * rows;
    end = first + rows < s.T ? first + rows : s.T;
  }
  // The offset of the block's head, or of a different head of its sample.
  __device__ int64_t in(const HeadLayout& l) const { return in(l, h); }
  __device__ int64_t in(const HeadLayout& l, int64_t head) const { return b * l.batch + head * l.head; }
};
inline dim3 grid_of(const AttentionShape& s, int64_t heads, int64_t rows) {
  return unsigned(s.B * heads * ((s.T + rows - 1) / rows));
}

// The end of the keys that queries before `end` see, and the first query that sees keys from `first` on.
inline __device__ int64_t keys_end(const AttentionShape& s, int64_t end) {
  return s.mask == Mask::Causal ? end : s.T;
}
inline __device__ int64_t queries_begin(const AttentionShape& s, int64_t first) {
  return s.mask == Mask::Causal ? first : 0;
}

// Calls f(t, j, factor) for queries t of [t0, t1) and keys j of [j0, j1); the threads of the block share the
// calls. Dropout multiplies the weight by factor: 0 or 1/(1-p). Four adjacent keys share a draw.
template <class F>
__device__ void dropout_factors(const AttentionShape& s, const StepScalars* scalars, int64_t b, int64_t h,
                                int64_t t0, int64_t t1, int64_t j0, int64_t j1, F f) {
  const float kept = 1.0f / (1.0f - s.dropout);
  const int64_t draws = (j1 - j0 + 2) / 4 + 1;  // the most for j1 - j0 keys, which may begin inside a draw
  for (int64_t i = threadIdx.x; i < (t1 - t0) * draws; i += blockDim.x) {
    const int64_t t = t0 + i / draws;
    const int64_t row = s.key.first_element + (h * s.T + t) * s.T;  // its offset in the sample's (H, T, T)
    const int64_t draw = (row + j0) / 4 + i % draws;
    const Philox4 words =
        dropout_words(s.key.seed, s.key.step_in(*scalars), s.key.ordinal, s.key.first_sample + b, draw);
    for (int w = 0; w < 4; ++w) {
      const int64_t j = 4 * draw + w - row;
      if (j0 <= j && j < j1) f(t, j, uniform01(words[w]) >= s.dropout ? kept : 0.0f);
    }
  }
}

// store() with a Write that is known only when the kernel runs, for kernels that store rarely.
template <class T>
__device__ void store(Write w, T* p, int64_t i, float r) {
  if (w == Write::Set)
    store<Write::Set>(p, i, r);
  else
    store<Write::Add>(p, i, r);
}

}  // namespace gradus::GRADUS_GPU
