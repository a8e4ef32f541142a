// A corpus: one string of bytes; the first `split` bytes are for training, the rest is held out.
//
// Every source is brought into this form. Files are joined, training files first, with a NUL byte after each
// (text has none, so byte 0 means "end of document"); a single file and generated text are cut in two. So all
// held-out text has text before it, and each of its bytes can be scored with context.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "src/core/input_file.h"
#include "src/data/grammar.h"

namespace gradus {

struct Corpus {
  std::string bytes;
  int64_t split = 0;
  std::string summary;  // one line for the report: the source, the sizes, what was skipped

  std::string_view train() const { return std::string_view(bytes).substr(0, size_t(split)); }
  std::string_view held_out() const { return std::string_view(bytes).substr(size_t(split)); }
};

// A larger file, or a folder with more text, is rejected, because a corpus is held in memory.
constexpr int64_t kMaxCorpusBytes = int64_t(1) << 30;

// Whole sentences, at least `bytes` in total; the held-out part is the last 10 %, cut between two sentences.
Corpus generate_corpus(const Grammar& grammar, uint64_t seed, int64_t bytes);

// Reads a file, or all files below a folder in the order of their paths. About 10 % of the bytes are held
// out: the end of a single file; of several files, whole files, spread evenly over the list (the choice
// depends only on the list, not on a seed). Skipped and counted in the summary: empty files, files that are
// not text (a NUL byte, or more than 10 % of control characters and malformed UTF-8), exact copies of a file
// already read (so no training file is also held out), and anything that is not a regular file. A link to a
// file counts as that file, which is read once; links to folders are not followed, because a few could lead
// to the whole disk (`path` itself may be one). Errors: a path that does not exist, nothing readable, no text
// at all, more than kMaxCorpusBytes.
Corpus load_corpus(const std::string& path);

// Finds a file of the repository's data/ folder: from the current folder, or the program's, upwards.
std::string find_data_file(const std::string& name);

}  // namespace gradus
