// Layouts of ranks (src/parallel/layout.h): all directions together.
#include "src/parallel/layout.h"

#include "src/optim/optimizer.h"
#include "src/parallel/comm/cluster.h"
#include "src/parallel/context_parallel.h"
#include "src/parallel/pipeline.h"
#include "src/parallel/shards.h"
#include "src/parallel/tensor_parallel.h"
#include "src/parallel/zero.h"
#include "src/train/dummy.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

constexpr int64_t kSequences = 8;
const TransformerConfig kModel{.vocab = 30, .context = 8, .layers = 8, .heads = 8, .channels = 16};

TextBatch batch_of(int64_t step) {
  Rng rng(uint64_t(step), 5);
  TextBatch b{kSequences, kModel.context, {}, {}, 0};
  for (std::vector<int32_t>* ids : {&b.ids, &b.targets})
    for (int64_t i = 0; i < kSequences * kModel.context; ++i)
      ids->push_back(int32_t(rng.below(uint64_t(kModel.vocab))));
  return b;
}

struct Trained {
  std::vector<double> losses, norms;
};

Trained train_plain(int64_t steps, float max_norm) {
  Context context("cpu", 7);
  Transformer model(kModel);
  model.initialize(3);
  AdamW optimizer(model.parameters);
  Trained run;
  for (int64_t step = 0; step < steps; ++step) {
    const TextBatch b = batch_of(step);
    model.parameters.zero_grad();
    Tape tape;
    const Tensor loss = model.loss(on_device(b.ids, b.T, "ids"), on_device(b.targets, b.T, "targets"));
    tape.backward(loss);
    if (max_norm > 0) optimizer.clip_grad_norm(max_norm);
    optimizer.step(1e-3);
    run.losses.push_back(item(loss));
  }
  return run;
}

std::vector<double> train_layout(Comm& comm, const Layout& layout, int64_t steps, float max_norm) {
  const LayoutGroups groups(comm, layout);
  std::vector<int64_t> ends;
  for (int64_t k = 1; k <= layout.pipeline; ++k) ends.push_back(k * kModel.layers / layout.pipeline);
  Transformer model(kModel, Allocate::Later, part_of_pipeline(ends, groups.place.pipeline, layout.pipeline));
  TensorParallel tensor(*groups.tensor, model, Sequence::Whole, Allocate::Later);
  if (layout.context > 1) share_context(*groups.context, model);
  Pipeline pipeline(*groups.pipeline, model);
  Zero zero(*groups.replicas, model.parameters,
            {.stage = 1, .others = {groups.tensor.get(), groups.pipeline.get()}});
  model.initialize(3, [&](Parameter& p, const auto& values) { zero.assign(p, values); });
  AdamW optimizer(zero.shards);
  const int64_t own = kSequences / layout.data, m = std::min<int64_t>(own, 4);
  const Schedule schedule = one_forward_one_backward(layout.pipeline, m);
  std::vector<double> losses;
  for (int64_t step = 0; step < steps; ++step) {
    const TextBatch batch = batch_of(step).part(groups.place.data * own, own);
    std::vector<TextBatch> micro = batch.parts(even_split(own, m));
    if (layout.context > 1)
      for (TextBatch& b : micro) b = chunks_of(b, groups.place.context, layout.context);
    model.parameters.zero_grad();
    zero.last_micro_batch = false;
    const double loss = pipeline.run(schedule, micro, kSequences * kModel.context);
    pipeline.sum_tied_gradients();
    zero.last_micro_batch = true;
    zero.end_backward();
    if (max_norm > 0) optimizer.clip_grad_norm(max_norm);
    optimizer.step(1e-3);
    const double of_replicas = sum_over_ranks(*groups.replicas, loss);
    losses.push_back(sum_over_ranks(*groups.pipeline, of_replicas));
  }
  return losses;
}

TEST(L20_Layout, AllOfEightRanks) {
  for (const float max_norm : {0.f, 0.5f}) {
    const Trained plain = train_plain(5, max_norm);
    for (int64_t c : {1, 2})
      for (int64_t p : {1, 2, 4, 8})
        for (int64_t d : {1, 2, 4, 8})
          for (int64_t t : {1, 2, 4, 8}) {
            const Layout layout{p, d, t, c};
            if (layout.ranks() != 8) continue;
            std::vector<double> losses;
            run_cluster({.ranks = 8, .seed = 7}, [&](Comm& comm) {
              const auto mine = train_layout(comm, layout, 5, max_norm);
              if (comm.rank() == 0) losses = mine;
            });
            for (size_t i = 0; i < 5; ++i)
              EXPECT_NEAR(losses[i], plain.losses[i], 1e-5) << layout.text() << " step " << i;
          }
  }
}

}  // namespace
}  // namespace gradus
