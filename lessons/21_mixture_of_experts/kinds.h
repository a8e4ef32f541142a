// A text of four kinds: passages from four grammars, in random order.
#pragma once
#include "src/data/corpus.h"

namespace gradus {

struct KindsText {
  Corpus corpus;                   // without a summary
  std::vector<std::string> names;  // of the kinds
  std::vector<uint8_t> kind;       // of each byte of the corpus
};
// Passages of at least 300 bytes, whole sentences of one grammar each, `bytes` bytes or a little more.
KindsText text_of_kinds(int64_t bytes, uint64_t seed);

}  // namespace gradus
