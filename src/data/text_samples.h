// Samples of a text file that is encoded when it is read.
#pragma once
#include <memory>

#include "src/core/mapped_file.h"
#include "src/data/byte_pairs.h"

namespace gradus {

class TextSamples {
 public:
  // Of the first `bytes` bytes of the file: sample i begins with the first word at or behind byte i * stride
  // (a word begins with its space). Refers to the byte pairs. T >= 1, stride >= 1.
  TextSamples(std::shared_ptr<const MappedFile> file, int64_t bytes, const BytePairs& pairs, int64_t T,
              int64_t stride);

  int64_t count() const;
  // Its first T tokens as inputs, and as targets the T that follow each of them. Behind the end of the text
  // inputs are 0 and targets -1, which do not count. An encoder belongs to one thread. `dropout` may be
  // nullptr. An Error if the file has become shorter.
  void read(int64_t sample, BytePairEncoder& encoder, MergeDropout* dropout, int32_t* inputs,
            int32_t* targets) const;

 private:
  std::shared_ptr<const MappedFile> file_;
  std::string_view text_;
  const BytePairs& pairs_;
  int64_t T_, stride_;
};

}  // namespace gradus
