// polyglot-ko-1.3b with adapters: lesson 12. What the book prints of the same model in full is in runs.cpp.
#include "lessons/published/measure.h"

namespace gradus {

struct Printed {  // GiB
  double loaded, gradients, states, updated;
  const char* loaded_why;
};

// Their run less ours after the update, by what it is.
static std::vector<Difference> after_the_update(const Usage& theirs, const Usage& ours) {
  const auto of = [&](std::initializer_list<Kind> kinds) {
    int64_t bytes = 0;
    for (const Kind k : kinds) bytes += theirs[k] - ours[k];
    return bytes;
  };
  std::vector<Difference> rows{
      {"weights", of({Kind::Weight, Kind::Master}), "theirs: what is not in 4 bits is in fp32"},
      {"gradients", of({Kind::Gradient}), ""},
      {"states", of({Kind::Optimizer}), ""},
      {"buffers", of({Kind::Other, Kind::Data}), "masks and rotary tables of each layer; ours has none"},
      {"library workspace", of({Kind::Vendor}), "two of cuBLAS's, one of ours"},
      {"outputs", of({Kind::Activation, Kind::Temporary}), "what their forward pass returned"},
      {"rounding", theirs.rounding - ours.rounding, "by the allocator's rules"}};
  for (Difference& d : rows)
    if (d.bytes == 0) d.why = "the same";
  return rows;
}

static PublishedRuns compare(const MetaSetting& set, const Printed& printed) {
  const MetaRun theirs = run_theirs(set), ours = run_ours(set);
  PublishedRuns runs;
  runs.figures = {gib_figure("loaded", printed.loaded, theirs.loaded_allocated, ours.loaded_allocated,
                             printed.loaded_why),
                  gib_figure("gradients", printed.gradients, theirs.updated[Kind::Gradient],
                             ours.updated[Kind::Gradient], "the same"),
                  gib_figure("optimizer", printed.states, theirs.updated[Kind::Optimizer],
                             ours.updated[Kind::Optimizer], "the same"),
                  gib_figure("after the update", printed.updated, theirs.updated.allocated(),
                             ours.updated.allocated(), "the next table")};
  constexpr double kGiB = 1024.0 * kMiB;
  runs.gap = finished({"theirs - ours, after the update", "published - ours",
                       after_the_update(theirs.updated, ours.updated), 0,
                       int64_t(printed.updated * kGiB) - ours.updated.allocated(), 0, "allocated"});
  return runs;
}

PublishedRuns published_lora() {
  MetaSetting set{"polyglot-ko-1.3b", 16, 256, 1, true};
  set.tuning = Tuning::Lora;
  return compare(set, {2.602, 0.003, 0.006, 4.732, "masks, rotary tables"});
}

PublishedRuns published_qlora() {
  MetaSetting set{"polyglot-ko-1.3b", 16, 256, 1, true};
  set.tuning = Tuning::QLora;
  set.checkpoints = true;
  return compare(set, {1.183, 0.006, 0.012, 1.722, "as above; embeddings in fp32"});
}

}  // namespace gradus
