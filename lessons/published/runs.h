// Published training runs beside ours: the published figure; "theirs", their program repeated on meta
// (hugging_face.h); "ours", our Transformer on meta; and the difference taken apart by name. No formula is
// used: every number but the published ones is measured at an allocator.
#pragma once
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace gradus {

// What a card of 16 GB leaves to an allocator: nvidia-smi's total of a Tesla V100-SXM2-16GB, less what NVML
// showed there after the first tensor of 4 bytes (context and kernels; other cards and drivers need more or
// less). Source: Hugging Face, "Model training anatomy", whose MB are MiB. The book does not say what its
// card of 16 GB left.
constexpr int64_t kCardMiB = 16'160, kContextMiB = 1'343;

struct PublishedFigure {
  std::string run, figure, unit;  // MiB or GiB
  double published, theirs, ours;
  std::string why;  // ours is another than the published one
};
struct Difference {
  std::string name;
  int64_t bytes;  // theirs - ours
  std::string why;
};
struct Verdict {
  std::string run;
  bool published, theirs, ours;                       // it fits
  int64_t published_request = 0, theirs_request = 0;  // bytes that could not be had, if it does not
  int64_t theirs_room = 0;                            // bytes that are left, if it does
};

struct PublishedRuns {
  std::vector<PublishedFigure> figures;
  std::vector<Verdict> verdicts;
  // Of BERT-large with batch 4, reserved bytes without the context:
  std::vector<Difference> differences;  // they sum to theirs - ours
  int64_t gap = 0;                      // published - ours
  int64_t named = 0;                    // the sum of the differences
  int64_t unexplained = 0;              // gap - named: what repeating their program does not show
};
PublishedRuns published_runs();                                 // ten training runs on meta, in milliseconds
std::ostream& operator<<(std::ostream&, const PublishedRuns&);  // three tables

}  // namespace gradus
