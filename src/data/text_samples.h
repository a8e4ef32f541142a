// Samples of a text file, which are encoded when they are read.
#pragma once
#include <memory>

#include "src/core/mapped_file.h"
#include "src/data/batch_loader.h"
#include "src/data/byte_pairs.h"
#include "src/data/sample_order.h"

namespace gradus {

class TextSamples {
 public:
  // Samples of the file's first `bytes` bytes. Sample i begins at the first space or line end at or after
  // byte i * stride, which belongs to the next word; without one within the stride, at that byte. After the
  // last stride there are more bytes than the longest token has, so each sample has a target. `pairs` must
  // outlive this. T >= 1, stride >= 1.
  TextSamples(std::shared_ptr<const MappedFile> file, int64_t bytes, const BytePairs& pairs, int64_t T,
              int64_t stride);

  int64_t count() const;
  int64_t T() const { return T_; }
  const BytePairs& pairs() const { return pairs_; }
  // Writes the sample's first T tokens as inputs, and as targets the token that follows each of them. After
  // the end of the text inputs are 0 and targets -1, which do not count. Of a piece of more than 1,024 bytes
  // the sample may have only the beginning. Each thread needs its own encoder. `dropout` may be nullptr. An
  // Error if the file has become shorter.
  void read(int64_t sample, BytePairEncoder& encoder, MergeDropout* dropout, int32_t* inputs,
            int32_t* targets) const;

 private:
  std::shared_ptr<const MappedFile> file_;
  std::string_view text_;
  const BytePairs& pairs_;
  int64_t T_, stride_, longest_ = 0;  // longest_: bytes of the longest token
};

// The positions of an order that one rank reads in each step.
struct Share {
  int64_t batch;                // samples per step, on all ranks together; a multiple of the ranks
  int64_t rank = 0, ranks = 1;  // each rank reads the same number of samples per step, rank 0 first
  int64_t position = 0;         // of the first sample of step 0: the number read before a restart
  int64_t rows() const { return batch / ranks; }
  int64_t first_of(int64_t step) const;  // position of the rank's first sample of a step; its rows() follow
};

// The Fill of a rank's BatchLoader with `workers` workers: batches of rows() samples of T tokens. Merges are
// dropped with the probability `dropout`, by random numbers of (seed, position). `samples` must outlive it.
BatchLoader::Fill read_samples(const TextSamples& samples, const SampleOrder& order, const Share& share,
                               int64_t workers, double dropout, uint64_t seed);

}  // namespace gradus
