// The single-device run of lesson 17, and the checks that fail if a rank differs from it.
#include "lessons/17_data_parallel/ways.h"

#include <gtest/gtest.h>

#include "src/optim/optimizer.h"
#include "src/tensor/context.h"
#include "tests/data/loader_testing.h"
#include "tests/lessons/report_testing.h"

namespace gradus {
namespace {

const ParallelTask kTask{
    {.vocab = 256, .context = 6, .layers = 1, .heads = 2, .channels = 8, .dropout = 0.2}, 12, 3, 1, 1, 1e-2};

// One rank is ordinary training. The shares of several ranks add up to it, because each sequence has the
// dropout masks that it has in the whole batch.
TEST(L17_OneDevice, OneRankIsOrdinaryTraining) {
  const Context context("cpu", kTask.seed);
  const Corpus corpus = random_corpus(2500, 500);
  const Loader loader(corpus, 6, 5);
  Transformer model(kTask.model);
  model.initialize(1);
  AdamW optimizer(model.parameters);
  double loss_last = 0;
  for (int64_t step = 0; step < kTask.steps; ++step) {
    model.parameters.zero_grad();
    Tape tape;
    const Tensor loss = share_of_loss(model, kTask, read_shard(loader, kTask, step, 0, 1));
    loss_last = item(loss);
    tape.backward(loss);
    optimizer.clip_grad_norm(1);
    optimizer.step(1e-2);
  }
  for (const int64_t ranks : {1, 2, 3, 4}) {
    const OneDevice run = train_on_one_device(loader, kTask, ranks);
    EXPECT_NEAR(run.loss_last, loss_last, 1e-4) << ranks;
    size_t i = 0;
    for (const Parameter& p : model.parameters) {
      const std::vector<double> expected = to_host<double>(p.value), &got = run.weights[i++];
      for (size_t k = 0; k < expected.size(); ++k)
        EXPECT_NEAR(got[k], expected[k], ranks == 1 ? 0 : 1e-3) << p.name;
    }
  }
}

TEST(L17_OneDevice, NumbersAreSummedInFp64) {
  run_cluster({.ranks = 3}, [](Comm& comm) {
    EXPECT_EQ(sum_over_ranks(comm, 0.1 + double(comm.rank())), 0.1 + 1.1 + 2.1);
    EXPECT_EQ(sum_over_ranks(comm, comm.rank() == 2 ? 1e-12 : 0.5), 0.5 + 0.5 + 1e-12);
  });
}

// The checks that fail if a rank's run, which is right, is changed by `plant`.
Names failed_ways(const std::function<void(int64_t rank, SummedRun&)>& plant) {
  Context context;
  RanksArgs args;
  args.ranks = 2;
  const OneDevice alone{{{1, 2}, {3, 4}}, 5};
  return failed_checks([&](Report& report) {
    compare_way(
        args, kTask,
        [&](Comm& comm, const ParallelWay&) {
          SummedRun run{{alone.weights, {0.1}, 5, {}}, {}, 100};
          run.sent.elements = 100;
          plant(comm.rank(), run);
          return run;
        },
        {"way", 8, false}, alone, report);
  });
}

TEST(L17_Ways, TheReportFailsIfARankDiffers) {
  EXPECT_EQ(failed_ways([](int64_t, SummedRun&) {}), Names{});
  const Names unlike{"2 ranks, way: parameters that differ bitwise from the single-device run"},
      sent{"2 ranks, way: ranks whose elements sent differ from 2 (N-1)/N of the padded gradients"};
  for (const int64_t wrong : {0, 1}) {
    const auto failed = [&](const std::function<void(SummedRun&)>& plant) {
      return failed_ways([&](int64_t rank, SummedRun& run) {
        if (rank == wrong) plant(run);
      });
    };
    for (const size_t parameter : {0u, 1u}) {
      EXPECT_EQ(failed([=](SummedRun& r) { r.weights[parameter][1] += 1e-15; }), unlike) << wrong;
      EXPECT_EQ(failed([=](SummedRun& r) { r.weights[parameter][0] = NAN; }), unlike) << wrong;
    }
    EXPECT_EQ(failed([](SummedRun& r) { r.weights.pop_back(); }), unlike) << "a parameter is missing";
    EXPECT_EQ(failed([](SummedRun& r) { r.weights.clear(); }), unlike);
    for (const int64_t elements : {96, 104})
      EXPECT_EQ(failed([=](SummedRun& r) { r.sent.elements = elements; }), sent) << wrong;
    EXPECT_EQ(failed([](SummedRun& r) { r.sent.elements = r.numel = 2; }), sent)
        << "fewer elements are summed than the model has";
  }
  for (const double wrong : {5.1, 4.9, double(NAN)})
    EXPECT_EQ(failed_ways([=](int64_t, SummedRun& r) { r.loss = wrong; }),
              Names{"2 ranks, way: last loss, difference from the single-device run"});
}

TEST(L17_Ways, TheReportFailsIfTheShardsAreNotTheBatch) {
  const OneDevice whole{{{1, 2}, {3, 4}}, 5};
  const Checked failed(whole, [&](const OneDevice& parts, Report& r) { check_shards(3, parts, whole, r); });
  const Names off{
      "single device, gradient summed over 3 shards or of the whole batch: largest difference of a weight"};
  EXPECT_EQ(failed([](OneDevice& d) { d.weights[1][1] += 9e-5; }), Names{});
  for (const double by : {-1.1e-4, 1.1e-4, double(NAN)})
    EXPECT_EQ(failed([=](OneDevice& d) { d.weights[1][1] += by; }), off);
  EXPECT_EQ(failed([](OneDevice& d) { d.weights.pop_back(); }), off);
  EXPECT_EQ(failed([](OneDevice& d) { d.weights[0].pop_back(); }), off);
  EXPECT_EQ(failed_checks([&](Report& r) { check_shards(3, {}, {}, r); }), off) << "no weights are compared";
}

}  // namespace
}  // namespace gradus
