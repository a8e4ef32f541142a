// Context parallelism (src/parallel/context_parallel.h, ring_attention.h).
#include "src/parallel/context_parallel.h"

#include <gtest/gtest.h>

#include "src/optim/optimizer.h"
#include "src/parallel/comm/cluster.h"
#include "src/parallel/data_parallel.h"
#include "src/parallel/shards.h"
#include "src/train/dummy.h"

namespace gradus {
namespace {

std::vector<double> train(const TransformerConfig& c, int64_t steps, Comm* comm) {
  Transformer model(c);
  model.initialize(3);
  if (comm) share_context(*comm, model);
  Sgd sgd(model.parameters);
  std::vector<double> losses;
  for (int64_t step = 0; step < steps; ++step) {
    const DummyBatch batch = dummy_batch(c, 2, c.context, uint64_t(step + 1));
    model.parameters.zero_grad();
    Tape tape;
    Tensor loss;
    if (comm) {
      const Tensor count = from_host(current().device, std::vector<double>{double(batch.ids.numel())}, {1},
                                     DType::F32, Kind::Data, "count");
      const TextBatch own =
          chunks_of({2, c.context, to_host<int32_t>(batch.ids), to_host<int32_t>(batch.targets)},
                    comm->rank(), comm->size());
      loss =
          model.loss(on_device(own.ids, own.T, "ids"), on_device(own.targets, own.T, "targets"), {}, count);
    } else {
      loss = batch.loss(model);
    }
    tape.backward(loss);
    if (comm) sum_gradients(*comm, model.parameters);
    sgd.step(0.1);
    losses.push_back(comm ? sum_over_ranks(*comm, item(loss)) : item(loss));
  }
  return losses;
}

TEST(L19_ContextParallel, ThinLine) {
  for (const Mask mask : {Mask::Causal, Mask::None}) {
    const TransformerConfig c{
        .vocab = 30, .context = 16, .layers = 2, .heads = 4, .channels = 16, .mask = mask};
    std::vector<double> plain;
    {
      Context context("cpu", 7);
      plain = train(c, 5, nullptr);
    }
    for (const int64_t ranks : {1, 2, 4}) {
      std::vector<double> ours;
      run_cluster({.ranks = ranks, .seed = 7}, [&](Comm& comm) {
        const std::vector<double> mine = train(c, 5, &comm);
        if (comm.rank() == 0) ours = mine;
      });
      ASSERT_EQ(ours.size(), plain.size());
      for (size_t i = 0; i < plain.size(); ++i)
        EXPECT_NEAR(ours[i], plain[i], 1e-6) << ranks << " ranks, step " << i;
    }
  }
}

}  // namespace
}  // namespace gradus
