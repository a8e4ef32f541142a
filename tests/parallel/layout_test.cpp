// Layouts of ranks (src/parallel/layout.h): all directions together.
#include "src/parallel/layout.h"

#include "src/optim/optimizer.h"
#include "src/parallel/comm/cluster.h"
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
  RankModel rank(comm, layout, kModel,
                 cut_blocks(std::vector<double>(size_t(kModel.layers), 1), 0, 0, layout.pipeline));
  rank.initialize(3);
  AdamW optimizer(rank.zero.shards);
  const int64_t m = std::min<int64_t>(kSequences / layout.data, 4);
  const Schedule schedule = one_forward_one_backward(layout.pipeline, m);
  std::vector<double> losses;
  for (int64_t step = 0; step < steps; ++step) {
    rank.model.parameters.zero_grad();
    losses.push_back(rank.run(schedule, rank.micro_batches(batch_of(step), m), kSequences * kModel.context));
    if (max_norm > 0) optimizer.clip_grad_norm(max_norm);
    optimizer.step(1e-3);
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
