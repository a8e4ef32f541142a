// The runs of lesson 04.
#include "lessons/published/measure.h"

namespace gradus {

static void compare_bert(PublishedRuns& all) {
  constexpr int64_t kLoaded = 2'631;
  const MetaSetting vanilla{"bert-large", 4, 512}, accumulated{"bert-large", 1, 512, 4};
  const MetaRun reproduced = run_reproduced(vanilla), ours = run_ours(vanilla);
  const MetaRun reproduced_4 = run_reproduced(accumulated), ours_4 = run_ours(accumulated);
  all.figures = {nvml_figure("NVML, loaded", kLoaded, reproduced.loaded_reserved, ours.loaded_reserved,
                             "gradus: q, k, v in one tensor"),
                 peak_figure("NVML, batch 4", kVanilla, reproduced, ours, "explained in the next table"),
                 peak_figure("NVML, 4 micro-batches of 1", kAccumulated, reproduced_4, ours_4,
                             "same reasons as for batch 4")};
  all.gap = gap_of("BERT-large, batch 4", kVanilla, reproduced, ours);
  all.verdicts.push_back({"BERT-large, batch 4", true, reproduced.fits(), ours.fits(), 0,
                          reproduced.failed_request, kBudget - reproduced.peak_reserved});
}

// The rule of `accelerate estimate-memory`, which onlybooks/llm uses first. It multiplies S, the bytes of the
// model in fp32: S/2 for the model in fp16, 2 S for its training. Its model has no head but includes the
// causal masks, for which it counts one bit per bool.
static int64_t rule_of_thumb(const TransformerConfig& c) {
  return 4 * (c.parameter_count() - c.vocab * c.channels) + c.layers * c.context * c.context / 8;
}

// The notebook (onlybooks/llm@65bd840, chapter_5.ipynb, transformers 4.40.1) prints
// torch.cuda.memory_allocated() between the update and zero_grad. The figures are the outputs that are stored
// in it; for batch 8, notes on a newer edition have 11.228.
static void compare_polyglot(PublishedRuns& all) {
  constexpr struct {
    int64_t batch;
    double printed;
    int64_t failed_request;
  } kPublished[] = {{4, 10.586, 0}, {8, 11.113, 0}, {16, 12.164, 64 * kMiB}};
  const auto figure = [&](const std::string& name, double published, int64_t reproduced, int64_t ours,
                          const char* why) {
    all.figures.push_back(gib_figure(name, published, reproduced, ours, why));
  };
  for (const auto& [batch, printed, failed_request] : kPublished) {
    const MetaSetting set{"polyglot-ko-1.3b", batch, 256, 1, true};
    const MetaRun reproduced = run_reproduced(set), ours = run_ours(set);
    if (batch == 4) {
      const int64_t rule = rule_of_thumb(set.config());
      figure("estimate-memory, model", 2.37, rule / 2, ours.peak[Kind::Weight],
             "published: model without head");
      figure("estimate-memory, training", 9.49, 2 * rule, ours.peak.allocated(), "published: no activations");
      figure("allocated after loading", 2.615, reproduced.loaded_allocated, ours.loaded_allocated,
             "masks, rotary tables, cuBLAS");
    }
    std::string name = "batch ";
    name += std::to_string(batch);
    figure("allocated after update, " + name, printed, reproduced.updated.allocated(),
           ours.updated.allocated(), "outputs: logits, keys, values");
    all.verdicts.push_back({"polyglot-ko-1.3b, " + name, failed_request == 0, reproduced.fits(), ours.fits(),
                            failed_request, reproduced.failed_request, kBudget - reproduced.peak_reserved});
  }
}

PublishedRuns published_runs() {
  PublishedRuns all;
  compare_bert(all);
  compare_polyglot(all);
  return all;
}

}  // namespace gradus
