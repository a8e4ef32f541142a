// The code of a chain, which src/train/chain_code.cpp writes, includes this file on a GPU. A block per row.
#pragma once
#include "kernels/cuda/gelu.h"
#include "kernels/cuda/layernorm.h"
#include "kernels/philox.h"

namespace gradus::GRADUS_GPU {

// The block's row: `cols` elements, from element `first` of all on. A chain that is only element-wise has no
// rows; there a block takes a piece of the elements.
struct ChainRow {
  const KernelChain& chain;
  const StepScalars* scalars;
  int64_t first, cols;

  __device__ ChainRow(RowShape s, int64_t piece, const KernelChain& chain, const StepScalars* scalars)
      : chain(chain),
        scalars(scalars),
        first(blockIdx.x * piece),
        cols(std::min(piece, s.rows * s.cols - first)) {}

  template <class T>
  __device__ T* at(int k) const {
    return static_cast<T*>(chain.p[k]) + first % chain.width[k];
  }
  template <class A>
  __device__ A* statistics(int k) const {
    return chain.p[k] ? static_cast<A*>(chain.p[k]) + 2 * int64_t(blockIdx.x) : nullptr;
  }
  // Dropout's random bits for element c of the row, in the chain's call i.
  __device__ uint32_t random_word(int i, int64_t c) const {
    const RandomKey& key = chain.key[i];
    const int64_t element = first + c, per_sample = chain.per_sample[i];
    const int64_t e = element % per_sample + key.first_element;
    return dropout_words(key.seed, key.step_in(*scalars), key.ordinal,
                         key.first_sample + element / per_sample, e / 4)[e % 4];
  }
};

// kernel<<<...>>>(s, piece, chain, scalars), one block per `piece` elements.
template <class Kernel>
void launch_chain(const Ctx& ctx, RowShape s, int64_t piece, const KernelChain& chain, Kernel* kernel) {
  launch(ctx, "chain", blocks_for(s.rows * s.cols, piece), row_threads(piece), 0, kernel, s, piece, chain,
         ctx.scalars);
}
constexpr int64_t kChainPiece = 8 * kThreads;  // elements per block of a chain without rows

}  // namespace gradus::GRADUS_GPU
