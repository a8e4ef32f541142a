// The single-device runs that add in rank order (lessons/19_tensor_parallel/runs.h) are compared with 4
// ranks, because the order of additions matters only with more than two. And models that ranks cannot divide
// are rejected.
#include <gtest/gtest.h>

#include "lessons/19_tensor_parallel/runs.h"
#include "src/parallel/context_parallel.h"
#include "src/parallel/data_parallel.h"
#include "src/parallel/parts.h"
#include "src/train/dummy.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

struct Task : ParallelTask {
  explicit Task(double dropout) {
    model = {.vocab = 256, .context = 16, .layers = 1, .heads = 4, .channels = 16, .dropout = dropout};
    batch = 2, steps = 2, seed = 3;
  }
  const Text text = load_text("", 4000, 3);
  const Loader loader{text.corpus, 16, 3};
};

void expect_equal(const TokensRun& rank, const TokensRun& alone) {
  EXPECT_EQ(rank.losses, alone.losses);
  for (size_t i = 0; i < alone.weights.size(); ++i)
    EXPECT_EQ(rank.weights[i],
              rank.shards[i] ? rank.shards[i]->of_values(alone.weights[i]) : alone.weights[i])
        << "parameter " << i << " of this rank differs from the single-device run";
}

TEST(L19_References, AddInPartsAsTensorParallelRanksDo) {
  const Task task(0.1);
  Context context("cpu", 3);
  const TokensRun alone =
      train_alone(task.loader, task, By::AdamW, [](Transformer& model) { add_in_parts(model, 4); });
  run_cluster({.ranks = 4, .seed = 3}, [&](Comm& comm) {
    Transformer model(task.model, Allocate::Later);
    TensorParallel ranks(comm, model);
    model.initialize(task.seed, &assign_part);
    AdamW optimizer(model.parameters);
    TokensRun mine;
    for (int64_t step = 0; step < task.steps; ++step) {
      model.parameters.zero_grad();
      Tape tape;
      const Tensor loss = share_of_loss(model, task, read_shard(task.loader, task, step, 0, 1));
      tape.backward(loss);
      mine.note_gradients(model.parameters, step);
      optimizer.step(learning_rate(By::AdamW));
      mine.losses.push_back(item(loss));
    }
    mine.end(model.parameters);
    expect_equal(mine, alone);
  });
}

TEST(L19_References, TrainInChunksAsContextParallelRanksDo) {
  const Task task(0);
  Context context("cpu", 3);
  for (const int64_t ranks : {1, 4}) {
    const TokensRun alone = train_in_chunks(task.loader, task, By::AdamW, ranks);
    run_cluster({.ranks = ranks, .seed = 3}, [&](Comm& comm) {
      Transformer model(task.model);
      model.initialize(task.seed);
      share_context(comm, model);
      AdamW optimizer(model.parameters);
      TokensRun mine;
      for (int64_t step = 0; step < task.steps; ++step) {
        const TextBatch own = chunks_of(read_shard(task.loader, task, step, 0, 1), comm.rank(), ranks);
        model.parameters.zero_grad();
        Tape tape;
        const Tensor loss = share_of_loss(model, task, own);
        tape.backward(loss);
        sum_gradients(comm, model.parameters);
        mine.note_gradients(model.parameters, step);
        optimizer.step(learning_rate(By::AdamW));
        mine.losses.push_back(sum_over_ranks(comm, item(loss)));
      }
      mine.end(model.parameters);
      expect_equal(mine, alone);
    });
  }
}

// The ranks' shares of the loss add up to the loss of the whole batch; not exactly, because no chunk attends
// to the chunks of the other rank here.
TEST(L19_References, SharesOfChunksAddUp) {
  const Task task(0);
  Context context("cpu", 3);
  Transformer model(task.model);
  model.initialize(3);
  const TextBatch batch = read_shard(task.loader, task, 0, 0, 1);
  double sum = 0;
  for (const int64_t r : {0, 1}) {
    const TextBatch half = chunks_of(batch, r, 2);
    EXPECT_EQ(half.T, 8);
    sum += item(share_of_loss(model, task, half));
  }
  EXPECT_NEAR(sum, item(share_of_loss(model, task, batch)), 0.5)
      << "the shares do not even nearly add up to the loss of the batch";
}

TEST(L19_Refusals, WhatRanksCannotShare) {
  run_cluster({.ranks = 4}, [](Comm& comm) {
    const TransformerConfig two_heads{.vocab = 31, .context = 8, .layers = 1, .heads = 2, .channels = 16};
    Transformer few(two_heads, Allocate::Later);
    expect_refused("tensor parallel: 2 heads cannot be divided among 4 ranks",
                   [&] { TensorParallel(comm, few); });
    const TransformerConfig c{.vocab = 31, .context = 8, .layers = 1, .heads = 4, .channels = 16};
    Transformer model(c, Allocate::Later);
    const TensorParallel first(comm, model);
    expect_refused("is divided already", [&] { TensorParallel(comm, model); });
    Transformer whole(c);
    whole.initialize(1);
    share_context(comm, whole);
    const Tensor ids = random_tokens({1, 4}, 31, 1, "ids");
    expect_refused("context parallel: 4 parts of 4 tokens; the model has 8 positions",
                   [&] { whole.loss(ids, ids); });
  });
}

}  // namespace
}  // namespace gradus
