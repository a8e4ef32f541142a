// BERT-large with the techniques of lessons 06 to 11.
#include "lessons/published/measure.h"

namespace gradus {

// In MiB: 4 micro-batches of 1 with checkpointing, in fp32 and in fp16.
constexpr int64_t kCheckpointing = 6'775, kAllMixed = 7'275;

PublishedRuns published_accumulation() {
  const MetaSetting vanilla{"bert-large", 4, 512}, accumulated{"bert-large", 1, 512, 4};
  const MetaRun reproduced = run_reproduced(vanilla), reproduced_4 = run_reproduced(accumulated);
  PublishedRuns runs;
  runs.figures = {nvml_figure("batch 4", kVanilla, reproduced.peak_reserved, run_ours(vanilla).peak_reserved,
                              "lesson 04"),
                  nvml_figure("4 x 1", kAccumulated, reproduced_4.peak_reserved,
                              run_ours(accumulated).peak_reserved, "lesson 04")};
  std::vector<Difference> rows = take_apart(reproduced, reproduced_4);
  for (Difference& d : rows) d.why = "";
  runs.gap = finished({"reproduced: batch 4 minus 4 x 1", "batch 4 minus 4 x 1, published", rows, 0,
                       (kVanilla - kAccumulated) * kMiB});
  return runs;
}

PublishedRuns published_checkpointing() {
  MetaSetting set{"bert-large", 1, 512, 4};
  const MetaRun all = run_reproduced(set), ours_all = run_ours(set);
  set.checkpoints = true;
  const MetaRun reproduced = run_reproduced(set), ours = run_ours(set);
  PublishedRuns runs;
  runs.figures = {peak_figure("4 x 1", kAccumulated, all, ours_all, "lesson 07"),
                  peak_figure("4 x 1, checkpointing", kCheckpointing, reproduced, ours, "the next table")};
  runs.gap = gap_of("BERT-large, 4 x 1, checkpointing", kCheckpointing, reproduced, ours);
  return runs;
}

PublishedRuns published_adafactor() {
  constexpr int64_t kAdafactor = 12'295;
  const MetaSetting adamw{"bert-large", 4, 512},
      adafactor{"bert-large", 4, 512, 1, false, HuggingFaceBert::Update::Adafactor};
  const MetaRun reproduced = run_reproduced(adafactor), ours = run_ours(adafactor);
  PublishedRuns runs;
  runs.figures = {peak_figure("NVML, AdamW", kVanilla, adamw, "lesson 04"),
                  peak_figure("NVML, Adafactor", kAdafactor, reproduced, ours, "the next table")};
  runs.gap = gap_of("BERT-large, Adafactor", kAdafactor, reproduced, ours);
  return runs;
}

PublishedRuns published_mixed_precision() {
  constexpr int64_t kMixed = 13'939;
  MetaSetting fp32{"bert-large", 4, 512}, all{"bert-large", 1, 512, 4};
  MetaSetting mixed = fp32;
  mixed.mixed = all.mixed = all.checkpoints = true;
  const MetaRun reproduced = run_reproduced(mixed), ours = run_ours(mixed);
  PublishedRuns runs;
  runs.figures = {
      peak_figure("batch 4", kVanilla, fp32, "lesson 04"),
      peak_figure("batch 4, fp16", kMixed, reproduced, ours, "the next table"),
      peak_figure("4 x 1, checkpointing, fp16", kAllMixed, all, "lesson 08; two copies of the weights")};
  runs.gap = gap_of("BERT-large, batch 4, fp16", kMixed, reproduced, ours);
  for (Difference& d : runs.gap.differences) {
    if (d.name == "attention scores") d.why = "in fp32; until PyTorch 1.10 softmax keeps its input";
    if (d.name == "other activations") d.why = "softmax and GELU in fp32, and an fp16 copy per product";
    if (d.name == "weights, gradients, states")
      d.why = "reproduced: fp16 copies of the weights of products; gradus: of all weights";
  }
  return runs;
}

PublishedRuns published_adam8bit() {
  using Update = HuggingFaceBert::Update;
  constexpr int64_t kAdam8bit = 13'085, kAllAdafactor = 4'847, kAllAdam8bit = 5'363;
  const MetaSetting vanilla{"bert-large", 4, 512};
  MetaSetting adam8bit = vanilla, all{"bert-large", 1, 512, 4};
  adam8bit.update = Update::Adam8bit;
  all.checkpoints = all.mixed = true;
  MetaSetting all_fp32 = all;
  all_fp32.mixed = false;
  MetaSetting all_adafactor = all, all_adam8bit = all;
  all_adafactor.update = Update::Adafactor, all_adam8bit.update = Update::Adam8bit;
  const MetaRun reproduced = run_reproduced(adam8bit), ours = run_ours(adam8bit);
  PublishedRuns runs;
  runs.figures = {
      peak_figure("batch 4, AdamW", kVanilla, vanilla, "lesson 04"),
      peak_figure("batch 4, 8-bit Adam", kAdam8bit, reproduced, ours, "the next table"),
      peak_figure("4 x 1, checkpointing", kCheckpointing, all_fp32, "lesson 08"),
      peak_figure("4 x 1, checkpointing, fp16", kAllMixed, all, "lesson 09: weights twice"),
      peak_figure("4 x 1, checkpointing, fp16, Adafactor", kAllAdafactor, all_adafactor, "as for fp16"),
      peak_figure("4 x 1, checkpointing, fp16, 8-bit Adam", kAllAdam8bit, all_adam8bit, "as for fp16")};
  runs.gap = gap_of("BERT-large, batch 4, 8-bit Adam", kAdam8bit, reproduced, ours);
  return runs;
}

}  // namespace gradus
