// Tokens: integers from 0 to vocabulary - 1, the first `split` of them for training, the rest held out. They
// are the bytes of a corpus, or those of a different tokenizer, in memory or in a file that is mapped.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/core/mapped_file.h"
#include "src/data/corpus.h"

namespace gradus {

class Tokens {
 public:
  // One token per byte. Refers to the corpus, which must outlive this.
  Tokens(const Corpus& corpus);
  // Errors: a token that is not in the vocabulary (of 1 to 2^31 - 1), a split above the number of tokens.
  Tokens(const std::vector<int32_t>& tokens, int64_t split, int64_t vocabulary);
  // Maps a file of file_bytes(). Errors: a file with a different format, or whose size differs from what its
  // header says.
  static Tokens of_file(const std::string& path);
  // The content of a file of tokens: "gradtok1", then size, split and vocabulary (int64, little-endian), then
  // the tokens, little-endian, of 1 byte if the vocabulary is at most 256, of 2 if at most 65,536, else of 4.
  std::string file_bytes() const;

  int64_t size() const { return size_; }
  int64_t split() const { return split_; }
  int64_t held_out() const { return size_ - split_; }
  int64_t vocabulary() const { return vocabulary_; }
  // to[i] = token begin + i, for i < n. An Error if a file has become shorter, or has a token that is not of
  // its vocabulary.
  void copy(int64_t begin, int64_t n, int32_t* to) const;

 private:
  Tokens() = default;
  std::shared_ptr<const void> owner_;  // of tokens that are not a corpus's bytes
  std::shared_ptr<const MappedFile> file_;
  const char* data_ = nullptr;
  int64_t width_ = 1, size_ = 0, split_ = 0, vocabulary_ = 0;
};

}  // namespace gradus
