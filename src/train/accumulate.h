// A batch that is worked through in micro-batches.
#pragma once
#include <ostream>
#include <vector>

#include "src/data/loader.h"
#include "src/nn/transformer.h"

namespace gradus {

// The sizes of micro-batches, in sequences: they add up to the batch.
using Split = std::vector<int64_t>;

struct TextBatch {
  int64_t sequences, T;
  std::vector<int32_t> ids, targets;               // (sequences, T); a target of -1 does not count
  int64_t first_sample = 0;                        // of the batch that this is a part of
  TextBatch part(int64_t first, int64_t n) const;  // n sequences from `first` on
  std::vector<TextBatch> parts(const Split& split) const;
  int64_t counted() const;  // targets that count
};
// Its ids or targets as a tensor (sequences, T).
Tensor on_device(const std::vector<int32_t>& rows, int64_t T, const char* name);
// The windows of training step `step`. `ragged`: of each sequence only the first tokens count, another number
// of them each, as if the rest were padding.
TextBatch read_batch(const Loader& loader, int64_t step, int64_t sequences, int64_t T, bool ragged);

// As even as it can be: sizes differ by 1 at most, larger ones first. 1 <= micro_batches <= sequences.
Split even_split(int64_t sequences, int64_t micro_batches);

struct Accumulated {
  double loss = 0;          // the mean over all targets of the batch that count
  int64_t saved_bytes = 0;  // the most that one micro-batch's tape saved
};
// Adds the gradient of the batch's loss to the parameters' gradients, one micro-batch after the other: the
// same, but for rounding, for every split, with dropout too. The split must add up to the batch.
Accumulated accumulate(Transformer& model, const TextBatch& batch, const Split& split);

void print_tape(std::ostream& out, const Transformer& model, const TextBatch& batch);

// What a mean over n[i] targets, for each of some micro-batches, is to be multiplied by, so that the products
// add up to the mean over all of them.
std::vector<double> weights_of_means(const std::vector<int64_t>& n);

}  // namespace gradus
