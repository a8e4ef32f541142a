// Two published training runs beside ours: the published figure, their program repeated on meta
// (hugging_face.h), our Transformer measured on meta, and the difference taken apart by name. Nothing here is
// predicted by a formula: every number but the published ones comes from an allocator.
#pragma once
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace gradus {

// Both runs were on cards of 16 GB. A budget is what such a card leaves to an allocator: nvidia-smi's total
// of a Tesla V100-SXM2-16GB, less what NVML showed after the first tensor of 4 bytes (context and kernels; it
// depends on card and driver). Source: Hugging Face, "Model training anatomy", MiB, which that page calls MB.
constexpr int64_t kCardMiB = 16'160, kContextMiB = 1'343;

struct PublishedFigure {
  std::string run, figure, unit;
  double published, theirs, ours;  // theirs: their program repeated on meta
  std::string why;                 // ours differs from the published figure
};
struct Difference {
  std::string name;
  int64_t bytes;  // theirs - ours
  std::string why;
};
struct Verdict {
  std::string run;
  bool published, theirs, ours;  // it fits a card of 16 GB
  std::string detail;            // room that is left, or the request that failed
};

struct PublishedRuns {
  std::vector<PublishedFigure> figures;
  // Of BERT-large with batch 4: sum to theirs - ours to the byte.
  std::vector<Difference> differences;
  int64_t gap = 0;          // published - ours, reserved bytes
  int64_t named = 0;        // the sum of the differences
  int64_t unexplained = 0;  // gap - named: published, but not seen by their program repeated
  std::vector<Verdict> verdicts;
};
PublishedRuns published_runs();                                 // about a second, on meta
std::ostream& operator<<(std::ostream&, const PublishedRuns&);  // three tables

}  // namespace gradus
