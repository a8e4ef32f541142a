// Published training runs beside ours: the published figure; "theirs", their program repeated on meta
// (hugging_face.h); "ours", our Transformer on meta; and the difference taken apart by name. No formula is
// used: every number but the published ones is measured at an allocator.
#pragma once
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "src/train/report.h"

namespace gradus {

// What a card of 16 GB leaves to an allocator: nvidia-smi's total of a Tesla V100-SXM2-16GB, less what NVML
// showed there after the first tensor of 4 bytes (context and kernels; other cards and drivers need more or
// less). Source: Hugging Face, "Model training anatomy", whose MB are MiB. The book does not say what its
// card of 16 GB left.
constexpr int64_t kCardMiB = 16'160, kContextMiB = 1'343;

struct PublishedFigure {
  std::string run, figure, unit;  // MiB or GiB
  double published, reproduced, ours;
  std::string why;  // ours is another than the published one
};
struct Difference {
  std::string name;
  int64_t bytes;  // theirs - ours
  std::string why;
};
struct Verdict {
  std::string run;
  bool published, reproduced, ours;                       // it fits
  int64_t published_request = 0, reproduced_request = 0;  // bytes that could not be had, if it does not
  int64_t reproduced_room = 0;                            // bytes that are left, if it does
};

// A published figure less another, and the same of two runs on meta taken apart.
struct Gap {
  std::string runs, figures;            // "theirs - ours", "published - gradus"
  std::vector<Difference> differences;  // of the two runs
  int64_t named = 0;                    // the sum of the differences
  int64_t whole = 0;                    // of the two figures
  int64_t unexplained = 0;              // whole - named: what repeating their program does not show
  std::string bytes = "reserved, without the context";
};

struct PublishedRuns {
  std::vector<PublishedFigure> figures;
  Gap gap;
  std::vector<Verdict> verdicts;
};
PublishedRuns published_runs();             // BERT-large and polyglot-ko, ten runs on meta, in milliseconds
PublishedRuns published_accumulation();     // BERT-large: batch 4, less 4 times batch 1 and one update
PublishedRuns published_checkpointing();    // BERT-large: 4 times batch 1, each block run again
PublishedRuns published_mixed_precision();  // BERT-large in fp16, also with all of the above
PublishedRuns published_adafactor();        // BERT-large with AdamW and with Adafactor
PublishedRuns published_adam8bit();         // BERT-large with 8-bit Adam, also with all of the above
PublishedRuns published_lora();             // polyglot-ko: adapters of rank 8 on query_key_value
PublishedRuns published_qlora();            // and its weights in 4 bits, each block checkpointed
std::ostream& operator<<(std::ostream&, const PublishedRuns&);  // a table each
// Prints them under a heading, and checks theirs: within 100 MiB of the published figures, or, where these
// are in GiB with three decimals, equal to them.
void report_published(const char* heading, const PublishedRuns& runs, Report& report);
// What fits, and how much of the gap has a name.
void check_verdicts(const PublishedRuns& runs, Report& report);

}  // namespace gradus
