// Samples of a text file that is encoded when it is read.
#pragma once
#include <memory>

#include "src/core/mapped_file.h"
#include "src/data/batch_loader.h"
#include "src/data/byte_pairs.h"
#include "src/data/sample_order.h"

namespace gradus {

class TextSamples {
 public:
  // Of the first `bytes` bytes of the file. Sample i begins at the first space or line end from byte i *
  // stride on, which belongs to the word behind it; without one within the stride, at that byte. Behind the
  // last stride there are more bytes than the longest token has, so each sample has a target. Refers to the
  // byte pairs. T >= 1, stride >= 1.
  TextSamples(std::shared_ptr<const MappedFile> file, int64_t bytes, const BytePairs& pairs, int64_t T,
              int64_t stride);

  int64_t count() const;
  int64_t T() const { return T_; }
  const BytePairs& pairs() const { return pairs_; }
  // Its first T tokens as inputs, and as targets the T that follow each of them. Behind the end of the text
  // inputs are 0 and targets -1, which do not count. Of a piece of more than 1,024 bytes it may have only the
  // beginning. An encoder belongs to one thread. `dropout` may be nullptr. An Error if the file has become
  // shorter.
  void read(int64_t sample, BytePairEncoder& encoder, MergeDropout* dropout, int32_t* inputs,
            int32_t* targets) const;

 private:
  std::shared_ptr<const MappedFile> file_;
  std::string_view text_;
  const BytePairs& pairs_;
  int64_t T_, stride_, longest_ = 0;  // longest_: bytes of a token
};

// Which positions of an order a rank reads, from where on.
struct Share {
  int64_t batch;                // samples of a step, of all ranks together; a multiple of the ranks
  int64_t rank = 0, ranks = 1;  // each rank reads as many samples of each step, those of rank 0 first
  int64_t position = 0;         // of the first sample of step 0: how many were read before, to go on there
  int64_t rows() const { return batch / ranks; }
  int64_t first_of(int64_t step) const;  // position of the rank's first sample of a step; its rows() follow
};

// What a rank's BatchLoader of so many workers is filled with: batches of rows() samples of T tokens. Merges
// are dropped with the probability `dropout`, by random numbers of (seed, position). Refers to the samples.
BatchLoader::Fill read_samples(const TextSamples& samples, const SampleOrder& order, const Share& share,
                               int64_t workers, double dropout, uint64_t seed);

}  // namespace gradus
