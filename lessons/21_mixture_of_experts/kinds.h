// A text of passages from four grammars, in random order.
#pragma once
#include "src/data/corpus.h"

namespace gradus {

struct KindsText {
  Corpus corpus;                   // without a summary
  std::vector<std::string> names;  // of the grammars
  std::vector<uint8_t> kind;       // per byte of the corpus: its grammar, an index into names
};
// A passage consists of whole sentences of one grammar, and has at least 300 bytes. The text has `bytes`
// bytes, or a few more because the last sentence is complete.
KindsText text_of_kinds(int64_t bytes, uint64_t seed);

}  // namespace gradus
