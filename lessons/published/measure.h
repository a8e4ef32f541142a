// Measures a training run of three steps on meta, of the reproduced program and of gradus, and divides their
// difference into named parts. Names with `ours` mean gradus's Transformer.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lessons/published/hugging_face.h"
#include "lessons/published/runs.h"
#include "src/memory/history.h"
#include "src/optim/optimizer.h"

namespace gradus {

constexpr int64_t kMiB = int64_t(1) << 20;
// Memory that NVML shows and that no allocator reserves. The published context was measured after the first
// tensor, so it includes the tensor's segment of 2 MiB; `reserved` includes this segment too, therefore it is
// subtracted.
constexpr int64_t kOutsideMiB = kContextMiB - 2;
constexpr int64_t kVanilla = 14'949, kAccumulated = 8'681;  // MiB: batch 4, and 4 times batch 1, AdamW
constexpr int64_t kBudget = (kCardMiB - kOutsideMiB) * kMiB;

// The tensors that are alive at the peak: requested bytes by (kind, name).
using Alive = std::map<std::pair<Kind, std::string>, int64_t>;

struct MetaRun {
  int64_t loaded_reserved = 0, loaded_allocated = 0;  // before the first step
  Usage updated;                                      // after the first update
  int64_t peak_reserved = 0;
  int64_t failed_request = 0;
  bool fits() const { return failed_request == 0; }
  Usage peak;
  Alive alive;
};

struct MetaSetting {
  const char* model;
  int64_t batch, tokens, micro_batches = 1;
  bool half = false;  // weights, gradients and optimizer states in fp16 (the model is then GPT-NeoX)
  HuggingFaceBert::Update update = HuggingFaceBert::Update::AdamW;
  bool checkpoints = false;  // each block
  bool mixed = false;        // reproduced: autocast; ours: recipe mixed-fp16
  Tuning tuning = Tuning::All;
  TransformerConfig config() const;
  std::unique_ptr<Optimizer> optimizer(Parameters& p) const;
};
MetaRun run_ours(const MetaSetting& set);
MetaRun run_reproduced(const MetaSetting& set);

// The largest memory that NVML shows for both programs.
PublishedFigure peak_figure(const char* name, int64_t published, const MetaRun& reproduced,
                            const MetaRun& ours, const char* why);
PublishedFigure peak_figure(const char* name, int64_t published, const MetaSetting& set, const char* why);
PublishedFigure nvml_figure(const char* name, int64_t published, int64_t reproduced, int64_t ours,
                            const char* why);
// A figure of polyglot-ko-1.3b.
PublishedFigure gib_figure(const std::string& name, double published, int64_t reproduced, int64_t ours,
                           const char* why);
std::vector<Difference> take_apart(const MetaRun& reproduced, const MetaRun& ours);  // at the peak
std::vector<Difference> take_apart_updated(const Usage& reproduced,
                                           const Usage& ours);  // after the first update
Gap finished(Gap gap);                                          // computes the sums
Gap gap_of(const std::string& run, int64_t published, const MetaRun& reproduced, const MetaRun& ours);

}  // namespace gradus
