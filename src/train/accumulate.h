// Gradient accumulation: a batch in micro-batches (lesson 07).
#pragma once
#include <ostream>
#include <vector>

#include "src/data/loader.h"
#include "src/nn/transformer.h"

namespace gradus {

// The sizes of the micro-batches, in sequences; their sum is the size of the batch.
using Split = std::vector<int64_t>;

struct TextBatch {
  int64_t sequences, T;
  std::vector<int32_t> ids, targets;               // (sequences, T); a target of -1 is padding
  int64_t first_sample = 0;                        // index of its first sequence in the whole batch
  TextBatch part(int64_t first, int64_t n) const;  // n sequences from `first` on
  std::vector<TextBatch> parts(const Split& split) const;
  int64_t counted() const;  // targets that are not padding
};
// The ids or targets of a batch as a tensor (sequences, T).
Tensor on_device(const std::vector<int32_t>& rows, int64_t T, const char* name);
// The windows of training step `step`. `ragged`: the sequences have different lengths, at random; the targets
// behind the end of a sequence are padding.
TextBatch read_batch(const Loader& loader, int64_t step, int64_t sequences, int64_t T, bool ragged);

// Micro-batches whose sizes differ by at most 1, the larger ones first. 1 <= micro_batches <= sequences.
Split even_split(int64_t sequences, int64_t micro_batches);

// The number of targets of the batch that are not padding, on the device.
Tensor target_count(const TextBatch& batch);
// The forward pass of one micro-batch. `first_sample` is the index of its first sequence in the whole batch,
// so that sequences have the dropout masks of the whole batch. The result is the share of the micro-batch in
// the batch's loss: the sum of its losses, divided by `count`, the target_count() of the whole batch.
Tensor share_of_loss(Transformer& model, const Tensor& ids, const Tensor& targets, int64_t first_sample,
                     const Tensor& count);

struct Accumulated {
  double loss = 0;          // the mean over all targets of the batch that are not padding
  int64_t saved_bytes = 0;  // of the micro-batch that saves most for its backward pass
};
// The loop over micro-batches that lesson 07's main.cpp writes out, for other lessons. It adds the gradient
// of the batch's loss to the parameters' gradients. The gradient does not depend on the split, except for
// rounding, with dropout too. The sizes must add up to the batch.
Accumulated accumulate(Transformer& model, const TextBatch& batch, const Split& split);

void print_tape(std::ostream& out, const Transformer& model, const TextBatch& batch);

// Micro-batch i has n[i] targets and a mean loss. Returns the weights of these means: their weighted sum is
// the mean over all targets.
std::vector<double> weights_of_means(const std::vector<int64_t>& n);

}  // namespace gradus
