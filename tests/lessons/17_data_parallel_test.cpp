// Lesson 17: the sequences that each rank reads, the ring, the ways to sum gradients.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "lessons/17_data_parallel/ring.h"
#include "src/parallel/comm/cluster.h"
#include "src/parallel/data_parallel.h"
#include "src/parallel/shards.h"
#include "tests/data/loader_testing.h"
#include "tests/lessons/report_testing.h"
#include "tests/mistakes.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

TEST(L17_Shards, NoSequenceIsReadTwiceAndNoneIsLeftOut) {
  RecordProperty("exercise", "17.1");
  const Context context("meta");  // the loader opens the range "data" of the current context
  const Corpus corpus = random_corpus(2500, 500);
  const ParallelTask task{{.context = 9}, 0, 1, 1};
  const Loader loader(corpus, 9, 5);
  for (const int64_t batch : {1, 5, 8, 24, 25})
    for (int64_t ranks = 1; ranks <= std::min<int64_t>(batch, 9); ++ranks)
      for (const int64_t step : {0, 3}) {
        ParallelTask t = task;
        t.batch = batch;
        const TextBatch all = read_batch(loader, step, batch, 9, false);
        std::vector<int32_t> ids, targets;
        int64_t first = 0, most = 0, least = batch;
        for (int64_t r = 0; r < ranks; ++r) {
          const TextBatch mine = read_shard(loader, t, step, r, ranks);
          EXPECT_EQ(mine.first_sample, first) << "rank " << r << " of " << ranks << ", batch " << batch;
          first += mine.sequences;
          EXPECT_GE(r == 0 ? batch : least, mine.sequences) << "larger shards come first";
          most = std::max(most, mine.sequences), least = std::min(least, mine.sequences);
          ids.insert(ids.end(), mine.ids.begin(), mine.ids.end());
          targets.insert(targets.end(), mine.targets.begin(), mine.targets.end());
        }
        EXPECT_EQ(ids, all.ids) << ranks << " ranks, batch " << batch
                                << usual_mistake({{first < batch && first == batch / ranks * ranks,
                                                   "batch % ranks sequences are left: no rank reads them"}});
        EXPECT_EQ(targets, all.targets);
        EXPECT_LE(most - least, 1) << ranks << " ranks, batch " << batch << ": sizes differ by at most one"
                                   << usual_mistake(
                                          {{most - least == batch % ranks,
                                            "one rank reads all batch % ranks remaining sequences; give "
                                            "one sequence each to the first ranks"}});
      }
}

TEST(L17_Ring, EveryRankHasTheSumAfterAllSteps) {
  RecordProperty("exercise", "17.4");
  for (const int64_t ranks : {1, 2, 3, 4, 5, 8})
    for (const int64_t n : {1, 2, 7, 40, 41}) {
      int64_t sent = 0;
      run_cluster({.ranks = ranks}, [&](Comm& comm) {
        std::vector<double> mine, expected;
        for (int64_t i = 0; i < n; ++i) {
          mine.push_back(double((comm.rank() + 1) * (i + 1)));
          expected.push_back(double(ranks * (ranks + 1) / 2 * (i + 1)));
        }
        const Tensor x = from_host(current().device, mine, {n}, DType::F32, Kind::Other, "x");
        int64_t steps = 0;
        ring_all_reduce(comm, x, [&](int64_t step) { EXPECT_EQ(step, ++steps); });
        EXPECT_EQ(steps, 2 * (ranks - 1));
        EXPECT_EQ(to_host<double>(x), expected)
            << ranks << " ranks, " << n << " numbers, rank " << comm.rank();
        sent += comm.sent().elements;
      });
      EXPECT_EQ(sent, 2 * (ranks - 1) * n);
    }
}

TEST(L17_Ring, AfterTheReduceScatterEachRankHasOneCompletePart) {
  RecordProperty("exercise", "17.4");
  for (const int64_t N : {2, 3, 4, 6}) {
    const RingSteps ring = watch_ring(N);
    ASSERT_EQ(int64_t(ring.values.size()), 2 * N - 1);
    EXPECT_EQ(ring.received[0][0], -1);
    EXPECT_EQ(ring.received[1][0], N - 1)
        << "in step 1 rank 0 receives the part of its left neighbor, " << N - 1;
    double whole = 0;
    for (const auto& rank : ring.values[0]) whole += rank[0];
    for (int64_t r = 0; r < N; ++r)
      for (int64_t p = 0; p < N; ++p)
        EXPECT_EQ(ring.values[size_t(N - 1)][size_t(r)][size_t(p)] == whole, p == (r + 1) % N)
            << "rank " << r << ", part " << p
            << usual_mistake(
                   {{ring.values.back()[size_t(r)] == std::vector<double>(size_t(N), whole),
                     "the sum is right, but this is a different ring: in step 1 rank 0 must send part 0"}});
  }
}

// The lesson's checks of the ring fail for wrong values: N = 6, n = 6,000, on PCI Express.
TEST(L17_Ring, ItsChecksFailForWrongValues) {
  RecordProperty("exercise", "17.4");
  const RingCounts ring = count_ring(network_called("pcie"), 6, 6000);
  EXPECT_EQ(ring.wrong, 0);
  EXPECT_EQ(ring.sent, 2 * 5 * 6000);
  EXPECT_NEAR(ring.seconds, 10 * (5.7e-6 + 4000 / 31.5e9), 1e-15);
  EXPECT_NEAR(ring.formula, 10 * (5.7e-6 + 4000 / 31.5e9), 1e-15);
  const auto counted = [](const AllReduce& sum) { return count_ring(network_called("pcie"), 6, 6000, sum); };
  const RingCounts none = counted([](Comm&, const Tensor&) {});
  EXPECT_EQ(none.wrong, 6 * 6000);
  EXPECT_EQ(none.sent, 0);
  EXPECT_EQ(none.seconds, 0);
  for (const double value : {14, 16}) {
    const RingCounts one = counted([=](Comm& comm, const Tensor& x) {
      ring_all_reduce(comm, x, [](int64_t) {});
      Tensor last = x.narrow(5999, 1);
      if (comm.rank() == 5) copy_from_host(last, {value});
    });
    EXPECT_EQ(one.wrong, 1) << value;
  }
  const Checked failed(ring, check_ring);
  const std::string name = "ring of 6 ranks, 6000 elements: ";
  EXPECT_EQ(failed([](RingCounts& r) { r.wrong = 1; }), Names{name + "elements that differ from the sum"});
  for (const int64_t more : {-1, 1})
    EXPECT_EQ(failed([=](RingCounts& r) { r.sent += more; }),
              Names{name + "elements sent by all ranks, 2 (N-1) n"});
  for (const double factor : {1 - 1e-8, 1 + 1e-8, double(NAN)})
    EXPECT_EQ(
        failed([=](RingCounts& r) { r.seconds *= factor; }),
        Names{name + "simulated time, relative difference from 2 (N-1) (latency + bytes / N / bandwidth)"});
}

// Two layers of y = x w, the first with a bias; each rank has a different x.
struct TwoLayers {
  TwoLayers() {
    parameters.add("bias", {3}, {}).assign({1, -1, 2});
    for (const char* name : {"first", "second"}) {
      Parameter& p = parameters.add(name, {3, 3}, {});
      p.assign({1, 0, 2, 0, 1, 0, -1, 0, 1});
    }
  }
  Tensor operator()(int64_t rank, bool second_alone = false) {
    const Tensor x =
        from_host<double>(current().device, {double(rank + 1), 2, 3}, {1, 3}, DType::F32, Kind::Data, "x");
    const Tensor h =
        second_alone ? x : linear(x, parameters.find("first").value, parameters.find("bias").value);
    return linear(h, parameters.find("second").value);
  }
  std::vector<std::vector<double>> gradients() {
    std::vector<std::vector<double>> all;
    for (const Parameter& p : parameters) all.push_back(to_host<double>(p.leaf.grad));
    return all;
  }
  Parameters parameters;
};

void backward(Tape& tape, const Tensor& y) {
  Tensor dy = empty_like(y, "dy");
  copy_from_host(dy, {1, 2, -1});
  tape.backward(y, dy);
}

std::vector<std::vector<double>> summed_by_hand(int64_t ranks, int64_t times) {
  Context context;
  TwoLayers net;
  for (int64_t r = 0; r < ranks; ++r)
    for (int64_t t = 0; t < times; ++t) {
      Tape tape;
      backward(tape, net(r));
    }
  return net.gradients();
}

TEST(L17_SumGradients, EachGradientIsTheSumOfAllRanks) {
  RecordProperty("exercise", "17.2");
  for (const int64_t ranks : {1, 2, 3}) {
    const auto expected = summed_by_hand(ranks, 1);
    run_cluster({.ranks = ranks}, [&](Comm& comm) {
      TwoLayers net;
      Tape tape;
      backward(tape, net(comm.rank()));
      sum_gradients(comm, net.parameters);
      const double got = net.gradients()[1][0], sum = expected[1][0];
      EXPECT_EQ(net.gradients(), expected)
          << ranks << " ranks"
          << usual_mistake(
                 {{got * double(ranks) == sum,
                   "this is the mean over the ranks; but their losses are already shares of one mean, so "
                   "the gradients must be added"},
                  {comm.sent().messages == 0, "no rank sends anything: each rank keeps its own gradient"}});
      EXPECT_EQ(comm.sent().messages, 3 * 2 * (ranks - 1)) << "one all-reduce per parameter";
    });
  }
}

TEST(L17_Buckets, ABucketIsSummedWhenTheLastOfItsGradientsIsFinal) {
  RecordProperty("exercise", "17.5");
  const auto expected = summed_by_hand(2, 1);
  for (const int64_t bytes : {1, 1000}) {  // one bucket per gradient; one bucket for all
    const int64_t buckets = bytes == 1 ? 3 : 1, messages = 2;
    run_cluster({.ranks = 2}, [&](Comm& comm) {
      TwoLayers net;
      GradientBuckets sums(comm, net.parameters, bytes);
      for (int step = 0; step < 2; ++step) {
        net.parameters.zero_grad();
        sums.sum_during_backward();
        const int64_t before = comm.sent().messages;
        Tape tape;
        backward(tape, net(comm.rank()));
        EXPECT_EQ(comm.sent().messages - before, messages * buckets)
            << "every bucket must have begun its all-reduce when the backward pass ends";
        sums.sum();
        EXPECT_EQ(net.gradients(), expected);
      }
      // The first layer's gradient is missing, so its bucket must not begin.
      net.parameters.zero_grad();
      sums.sum_during_backward();
      const int64_t before = comm.sent().messages;
      Tape tape;
      backward(tape, net(comm.rank(), true));
      EXPECT_EQ(comm.sent().messages - before, bytes == 1 ? messages : 0);
      expect_refused("parameter 'first' has no gradient", [&] { sums.sum(); });
    });
  }
}

// Three micro-batches per step; buckets are summed only in the backward pass of the last one.
void expect_micro_batches(int steps) {
  const auto expected = summed_by_hand(2, 3);
  run_cluster({.ranks = 2}, [&](Comm& comm) {
    TwoLayers net;
    GradientBuckets sums(comm, net.parameters, 1);
    for (int step = 0; step < steps; ++step) {
      net.parameters.zero_grad();
      const int64_t before = comm.sent().messages;
      for (int micro = 0; micro < 3; ++micro) {
        if (micro == 2) sums.sum_during_backward();
        Tape tape;
        backward(tape, net(comm.rank()));
        const int64_t sent = comm.sent().messages - before;
        EXPECT_EQ(sent, micro == 2 ? 6 : 0)
            << "step " << step << ", micro-batch " << micro
            << usual_mistake({{micro == 0 && sent == 6,
                               "buckets are summed, but sum_during_backward() was not called before this "
                               "backward pass"}});
      }
      sums.sum();
      EXPECT_EQ(net.gradients(), expected) << "step " << step;
    }
  });
}
TEST(L17_Buckets, OnlyTheLastMicroBatchSumsDuringBackward) {
  RecordProperty("exercise", "17.5");
  expect_micro_batches(1);
}
TEST(L17_Buckets, MicroBatchesInSeveralSteps) {
  RecordProperty("exercise", "17.6");
  expect_micro_batches(3);
}

}  // namespace
}  // namespace gradus
