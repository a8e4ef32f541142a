// Training with gradients that are summed one by one or in buckets is bitwise equal to training on one rank.
#include "tests/parallel/parallel_training.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

TEST(L17_DataParallel, TrainsAsOneRankDoes) { expect_all_train(all_settings(), ways_of(all_buckets())); }
TEST(L17_DataParallel, OnTheEmulatedGpu) {
  expect_all_train(settings_on_emu(), ways_of<BucketSetting>({{}, {3000}, {3000, true}}));
}

// Every rank has whole matrices and norms of whole gradients.
TEST(L17_DataParallel, ClippingAndOptimizersOfMatricesAreThoseOfOneRank) {
  const ShardedSetting clipped{.ranks = 3, .micro_batches = 2, .steps = 3, .batch = 12, .max_norm = 0.05};
  ShardedSetting adafactor = clipped;
  adafactor.make = optimizer_of<Adafactor>();
  expect_all_train({clipped, adafactor}, ways_of(all_buckets()));
}

// "of `bucket_bytes` or a little more": more by less than the last parameter in it. The last parameters are
// in the first bucket, so that a bucket can be summed while the first layers have no gradient yet.
TEST(L17_Buckets, AreAsLargeAsTheyShouldBe) {
  for (const Precision& t : {Precision{}, mixed(DType::BF16), uniform(DType::BF16)})
    for (const int64_t bytes : {1, 4 * (119 + 118), 1000, 5000, 1 << 20})
      run_cluster({.ranks = 2}, [&](Comm& comm) {
        Parameters parameters;
        std::vector<Parameter*> all;
        for (int i = 0; i < 20; ++i) all.push_back(&parameters.add(std::to_string(i), {100 + i}, t));
        const GradientBuckets buckets(comm, parameters, bytes);
        int64_t expected = 1, filled = 0, elements = 0, padded = 0;  // padded: to a multiple of the ranks
        for (size_t i = 20; i-- > 0;) {
          const bool next = filled >= bytes;
          if (next) ++expected, padded += round_up(elements, 2), filled = elements = 0;
          filled += all[i]->leaf.shape.bytes(t.gradient), elements += all[i]->leaf.shape.numel();
          if (i < 19) {
            const bool shared = &all[i]->leaf.grad.storage() == &all[i + 1]->leaf.grad.storage();
            EXPECT_EQ(shared, !next) << bytes << ", parameter " << i;
          }
        }
        EXPECT_EQ(buckets.buckets(), expected) << bytes;
        EXPECT_EQ(buckets.numel(), padded + round_up(elements, 2)) << bytes;
        EXPECT_EQ(current().device.meter().now()[Kind::Gradient], size_of(t.gradient) * buckets.numel())
            << bytes;
      });
}

// Gradients from before the buckets are not in them; after the buckets are destroyed, no gradient calls them.
TEST(L17_Buckets, BeginEmptyAndLeaveNothing) {
  run_cluster({.ranks = 1}, [&](Comm& comm) {
    Parameters parameters;
    Parameter& a = parameters.add("a", {3}, {});
    a.assign({1, 2, 3});
    const auto pass = [&] {
      Tape t;
      t.backward(scale(a.value, 2),
                 from_host<float>(current().device, {1, 1, 1}, {3}, DType::F32, Kind::Data, "1"));
    };
    pass();
    {
      GradientBuckets buckets(comm, parameters, 1000);
      EXPECT_TRUE(!a.leaf.written);
      EXPECT_NE(refusal([&] { buckets.sum(); }), "");
      pass();
      EXPECT_EQ(to_host<double>(a.leaf.grad), (std::vector<double>{2, 2, 2}));
    }
    EXPECT_TRUE(a.leaf.on_final == nullptr);
    EXPECT_FALSE(a.leaf.grad.defined());
    EXPECT_EQ(current().device.meter().now()[Kind::Gradient], 0) << "the buckets free their gradients";
    pass();
    EXPECT_EQ(to_host<double>(a.leaf.grad), (std::vector<double>{2, 2, 2}));
  });
}

// With an error in the backward pass, when the last parameter's gradient is being summed and the first
// parameter has none yet.
TEST(L17_Buckets, AStepThatAnErrorHasEndedIsTakenAgain) {
  for (const bool overlaps : {true, false})
    run_cluster({.ranks = 2}, [&](Comm& comm) {
      Parameters model;
      const auto p = with_values(add_three(model));
      GradientBuckets buckets(comm, model, 4);
      const auto start = [&](bool during_backward) {
        model.zero_grad();
        if (during_backward) buckets.sum_during_backward();
      };
      start(true);
      expect_refused("boom", [&] {
        Tape tape;
        const Tensor a = scale(p[0]->value, 1),
                     fails = record("fails", {a}, {}, a.detach(),
                                    [](const Node&, const Tensor&, Grads&) { fail("boom"); });
        const Tensor y = add(fails, scale(p[2]->value, 1));
        tape.backward(y, from_host<float>(current().device, {1, 1, 1, 1}, {4}, DType::F32, Kind::Data, "1"));
      });
      start(overlaps);
      pass(p, {1, 10, 100});
      buckets.sum();
      for (size_t i = 0; i < 3; ++i)
        EXPECT_EQ(to_host<double>(p[i]->leaf.grad), std::vector<double>(4, i == 0 ? 2 : i == 1 ? 20 : 200));
    });
}

// ---- gradients that become final in a different order on some ranks, or have nothing to add in the last
// backward pass: no rank may sum gradients of different parameters, which have the same size here ----

TEST(L17_GradientOrder, OfBuckets) {
  const std::vector<double> factors{1, 10, 100};
  for (const bool overlap : {false, true})
    for (const int64_t ranks : {2, 3})
      run_cluster({.ranks = ranks}, [&](Comm& comm) {
        Parameters model;
        const auto p = with_values(add_three(model));
        GradientBuckets buckets(comm, model, 4);
        EXPECT_EQ(buckets.buckets(), 3);
        for (int step = 0; step < 2; ++step) {
          model.zero_grad();
          pass(p, factors);
          if (overlap) buckets.sum_during_backward();
          if (comm.rank() == 0)
            pass(p, factors);
          else
            pass({p[2], p[0]}, {100, 1});  // b has nothing to add
          buckets.sum();
          const double N = double(ranks);
          for (size_t i = 0; i < 3; ++i) {
            const double expected = factors[i] * (i == 1 ? N + 1 : 2 * N);
            EXPECT_EQ(to_host<double>(p[i]->leaf.grad), std::vector<double>(4, expected))
                << p[i]->name << (overlap ? ", overlapped" : "");
          }
        }
      });
}

// As above; in stages 2 and 3 every pass has to reach every parameter, or there is an error.
TEST(L18_GradientOrder, OfZero) {
  const std::vector<double> factors{1, 10, 100};
  for (const int stage : {0, 1, 2, 3})
    for (const bool overlap : {false, true})
      for (const bool missing : {false, true}) {
        const std::string what = "stage " + std::to_string(stage) + (overlap ? ", overlapped" : "");
        const auto run = [&] {
          run_cluster({.ranks = 2}, [&](Comm& comm) {
            Parameters model(Allocate::Later);
            const auto p = add_three(model);
            Zero zero(
                comm, model,
                {.stage = stage, .unit = [](const Parameter& q) { return q.name; }, .overlap = overlap});
            for (Parameter* x : p) zero.assign(*x, std::vector<double>(4, 1));
            Sgd optimizer(zero.shards);
            zero.model().zero_grad();
            for (const bool last : {false, true}) {
              zero.last_micro_batch = last;
              if (!last || comm.rank() == 0)
                pass(p, factors);
              else if (missing)
                pass({p[0], p[2]}, {1, 100});
              else if (stage == 3)  // forward passes gather, so they have one order
                pass(p, factors);
              else
                pass({p[2], p[0], p[1]}, {100, 1, 10});
              zero.end_forward();
              zero.end_backward();
            }
            optimizer.step(1);
            const double expected[] = {-3, missing ? -29.0 : -39.0, -399};
            for (size_t i = 0; i < 3; ++i)
              EXPECT_EQ(to_host<double>(p[i]->value), std::vector<double>(4, expected[i]))
                  << what << (missing ? ", b is missing, " : ", ") << p[i]->name
                  << (overlap ? ", overlapped" : "");
          });
        };
        const std::string text = refusal(run);
        if (!missing || stage < 2) {
          EXPECT_EQ(text, "") << what;
        }
      }
}

}  // namespace
}  // namespace gradus
