// Tensor parallelism (src/parallel/tensor_parallel.h).
#include "src/parallel/tensor_parallel.h"

#include <gtest/gtest.h>

#include "src/optim/optimizer.h"
#include "src/parallel/comm/cluster.h"
#include "src/parallel/shards.h"
#include "src/train/dummy.h"

namespace gradus {
namespace {

TransformerConfig small(double dropout) {
  return {.vocab = 30, .context = 8, .layers = 2, .heads = 4, .channels = 16, .dropout = dropout};
}

std::vector<double> plain_losses(const TransformerConfig& c, int64_t steps) {
  Context context("cpu", 7);
  Transformer model(c);
  model.initialize(3);
  Sgd sgd(model.parameters);
  std::vector<double> losses;
  for (int64_t step = 0; step < steps; ++step) {
    const DummyBatch batch = dummy_batch(c, 2, c.context, uint64_t(step + 1));
    model.parameters.zero_grad();
    Tape tape;
    const Tensor loss = batch.loss(model);
    tape.backward(loss);
    sgd.step(0.1);
    losses.push_back(item(loss));
  }
  return losses;
}

std::vector<double> losses_of_ranks(const TransformerConfig& c, int64_t steps, int64_t ranks,
                                    Sequence tokens) {
  std::vector<double> losses;
  run_cluster({.ranks = ranks, .seed = 7}, [&](Comm& comm) {
    Transformer model(c, Allocate::Later);
    TensorParallel parallel(comm, model, tokens);
    model.initialize(3, &TensorParallel::assign_part);
    Sgd sgd(model.parameters);
    for (int64_t step = 0; step < steps; ++step) {
      const DummyBatch batch = dummy_batch(c, 2, c.context, uint64_t(step + 1));
      model.parameters.zero_grad();
      Tape tape;
      const Tensor loss = batch.loss(model);
      tape.backward(loss);
      parallel.sum_gradients();
      sgd.step(0.1);
      if (comm.rank() == comm.size() - 1) losses.push_back(item(loss));
    }
  });
  return losses;
}

TEST(L19_TensorParallel, ThinLine) {
  for (const double dropout : {0.0, 0.1})
    for (const Sequence tokens : {Sequence::Whole, Sequence::KeepGathered, Sequence::GatherAgain})
      for (const int64_t ranks : {1, 2, 4}) {
        const std::vector<double> plain = plain_losses(small(dropout), 5),
                                  ours = losses_of_ranks(small(dropout), 5, ranks, tokens);
        ASSERT_EQ(ours.size(), plain.size());
        for (size_t i = 0; i < plain.size(); ++i)
          EXPECT_NEAR(ours[i], plain[i], ranks == 1 ? 0 : 1e-6)
              << ranks << " step " << i << " tokens " << int(tokens) << " dropout " << dropout;
      }
}

}  // namespace
}  // namespace gradus
