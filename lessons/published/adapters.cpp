// polyglot-ko-1.3b with adapters (lesson 12). The published figures of its full training are in runs.cpp.
#include "lessons/published/measure.h"

namespace gradus {

struct Printed {  // GiB
  double loaded, gradients, states, updated;
  const char* loaded_why;
};

static PublishedRuns compare(const MetaSetting& set, const char* method, const Printed& printed) {
  const MetaRun reproduced = run_reproduced(set), ours = run_ours(set);
  PublishedRuns runs;
  runs.figures = {gib_figure("loaded", printed.loaded, reproduced.loaded_allocated, ours.loaded_allocated,
                             printed.loaded_why),
                  gib_figure("gradients", printed.gradients, reproduced.updated[Kind::Gradient],
                             ours.updated[Kind::Gradient], "equal"),
                  gib_figure("optimizer", printed.states, reproduced.updated[Kind::Optimizer],
                             ours.updated[Kind::Optimizer], "equal"),
                  gib_figure("after the update", printed.updated, reproduced.updated.allocated(),
                             ours.updated.allocated(), "the next table")};
  for (PublishedFigure& f : runs.figures) f.run += std::string(", ") + method;
  constexpr double kGiB = 1024.0 * kMiB;
  runs.gap = finished({"reproduced - gradus, after the update", "published - gradus",
                       take_apart_updated(reproduced.updated, ours.updated), 0,
                       int64_t(printed.updated * kGiB) - ours.updated.allocated(), 0, "allocated memory"});
  return runs;
}

PublishedRuns published_lora() {
  MetaSetting set{"polyglot-ko-1.3b", 16, 256, 1, true};
  set.tuning = Tuning::Lora;
  return compare(set, "LoRA", {2.602, 0.003, 0.006, 4.732, "masks, rotary tables"});
}

PublishedRuns published_qlora() {
  MetaSetting set{"polyglot-ko-1.3b", 16, 256, 1, true};
  set.tuning = Tuning::QLora;
  set.checkpoints = true;
  return compare(set, "QLoRA", {1.183, 0.006, 0.012, 1.722, "masks, rotary tables; embeddings in fp32"});
}

}  // namespace gradus
