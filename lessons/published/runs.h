// Published training runs: the published figure; "reproduced", the published program repeated allocation by
// allocation on meta (hugging_face.h); "gradus" (`ours`), our Transformer on meta; and the parts of the
// difference, each with a name. No formula is used: all numbers except the published ones are measured.
#pragma once
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "src/train/report.h"

namespace gradus {

// The memory that a GPU of 16 GB leaves to an allocator is kCardMiB, the total that nvidia-smi shows for a
// Tesla V100-SXM2-16GB, minus kContextMiB, the memory that NVML showed there after the first tensor of 4
// bytes (context and kernels; the value differs between GPUs and drivers). Source: Hugging Face, "Model
// training anatomy", whose MB are MiB. onlybooks/llm, the source of the other runs, does not say how much
// memory its GPU of 16 GB left.
constexpr int64_t kCardMiB = 16'160, kContextMiB = 1'343;

struct PublishedFigure {
  std::string run, figure, unit;  // MiB or GiB
  double published, reproduced, ours;
  std::string why;  // the reason for the difference published - ours
};
struct Difference {
  std::string name;
  int64_t bytes;  // reproduced - ours
  std::string why;
};
struct Verdict {
  std::string run;
  bool published, reproduced, ours;                       // true: the run fits
  int64_t published_request = 0, reproduced_request = 0;  // if it does not: bytes of the failed allocation
  int64_t reproduced_room = 0;                            // if it does: bytes left
};

// A published figure minus a second figure, and the parts of the difference between the two runs on meta.
struct Gap {
  std::string runs, figures;            // "reproduced - gradus", "published - gradus"
  std::vector<Difference> differences;  // of the two runs
  int64_t named = 0;                    // the sum of the differences
  int64_t whole = 0;                    // of the two figures
  int64_t unexplained = 0;              // whole - named: memory that the reproduced run does not show
  std::string bytes = "both: reserved memory, without the CUDA context";
};

struct PublishedRuns {
  std::vector<PublishedFigure> figures;
  Gap gap;
  std::vector<Verdict> verdicts;
};
PublishedRuns published_runs();             // BERT-large and polyglot-ko, ten runs on meta, in milliseconds
PublishedRuns published_accumulation();     // BERT-large: batch 4, compared with 4 micro-batches of 1
PublishedRuns published_checkpointing();    // BERT-large: 4 micro-batches of 1, each block recomputed
PublishedRuns published_mixed_precision();  // BERT-large in fp16, also with all of the above
PublishedRuns published_adafactor();        // BERT-large with AdamW and with Adafactor
PublishedRuns published_adam8bit();         // BERT-large with 8-bit Adam, also with all of the above
PublishedRuns published_lora();             // polyglot-ko: adapters of rank 8 on query_key_value
PublishedRuns published_qlora();            // the same with weights in 4 bits and every block checkpointed
std::ostream& operator<<(std::ostream&, const PublishedRuns&);  // figures, differences, verdicts
// Prints the tables under a heading, and checks the reproduced figures: within 100 MiB of the published ones,
// or, if these are in GiB with three decimals, equal to them.
void report_published(const char* heading, const PublishedRuns& runs, Report& report);
// Checks which runs fit, and the unexplained share of the gap.
void check_verdicts(const PublishedRuns& runs, Report& report);

}  // namespace gradus
