#include "src/parallel/layout.h"

#include "src/parallel/context_parallel.h"
#include "src/parallel/shards.h"

namespace gradus {

Layout Layout::place_of(int64_t rank) const {
  return {.pipeline = rank / (tensor * context * data),
          .data = rank / (tensor * context) % data,
          .tensor = rank % tensor,
          .context = rank / tensor % context};
}

std::string Layout::text() const {
  std::ostringstream text;
  text << "p" << pipeline << " d" << data << " t" << tensor << " c" << context;
  return text.str();
}

static const Layout& checked(const Layout& l, int64_t ranks) {
  check(std::min({l.pipeline, l.data, l.tensor, l.context}) >= 1 && l.ranks() == ranks, "layout ", l.text(),
        ": there are ", ranks, " ranks; its numbers must be at least 1, and their product that number");
  return l;
}

LayoutGroups::LayoutGroups(Comm& all, const Layout& layout)
    : place(checked(layout, all.size()).place_of(all.rank())) {
  // Ranks of the same color are a group: their places differ only in that direction.
  const auto group = [&](const char* name, Layout at) {
    return all.split(
        name,
        ((at.pipeline * layout.data + at.data) * layout.context + at.context) * layout.tensor + at.tensor);
  };
  Layout at = place;
  at.pipeline = 0, pipeline = group("pipeline", at);
  at = place, at.tensor = 0, tensor = group("tensor", at);
  at = place, at.context = 0, context = group("context", at);
  at.data = 0, replicas = group("replicas", at);
}

static ModelPart part_of(const TransformerConfig& c, const std::vector<int64_t>& ends, int64_t stage,
                         int64_t stages) {
  check(!ends.empty() && ends.back() == c.layers, "pipeline: the last chunk must end with the last of ",
        c.layers, " blocks; see cut_blocks");
  return part_of_pipeline(ends, stage, stages);
}

RankModel::RankModel(Comm& all, const Layout& layout, const TransformerConfig& config,
                     const std::vector<int64_t>& ends, Sequence sequence)
    : layout(layout),
      groups(all, layout),
      model(config, Allocate::Later, part_of(config, ends, groups.place.pipeline, layout.pipeline)),
      tensor(*groups.tensor, model, sequence, Allocate::Later),
      pipeline(*groups.pipeline, model),
      zero(*groups.replicas, model.parameters,
           {.stage = 1, .others = {groups.tensor.get(), groups.pipeline.get()}}) {
  if (layout.context > 1) share_context(*groups.context, model);
}

void RankModel::initialize(uint64_t seed) {
  model.initialize(seed, [this](Parameter& p, const auto& values) { zero.assign(p, values); });
}

std::vector<TextBatch> RankModel::micro_batches(const TextBatch& batch, int64_t count) const {
  check(batch.sequences % layout.data == 0, "layout ", layout.text(), ": ", batch.sequences,
        " sequences are not a multiple of its data ranks");
  const int64_t own = batch.sequences / layout.data;
  std::vector<TextBatch> all = batch.part(groups.place.data * own, own).parts(even_split(own, count));
  if (layout.context > 1)
    for (TextBatch& b : all) b = chunks_of(b, groups.place.context, layout.context);
  return all;
}

double RankModel::run(const Schedule& schedule, const std::vector<TextBatch>& micro_batches,
                      int64_t targets) {
  zero.last_micro_batch = false;  // it waits for the sums before its own
  const double loss = pipeline.run(schedule, micro_batches, targets);
  tensor.sum_gradients();
  pipeline.sum_tied_gradients();
  zero.last_micro_batch = true;
  zero.end_backward();
  return sum_over_ranks(*groups.pipeline, sum_over_ranks(*groups.replicas, loss));
}

}  // namespace gradus
