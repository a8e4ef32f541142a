// Gradients that are summed one by one or in buckets train as one rank does, to the bit.
#include "tests/dist/parallel_training.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

// Of the small model: less than any parameter, some of them, and all.
constexpr int64_t kBuckets[] = {4, 3000, 1 << 20};

TEST(L17_DataParallel, TrainsAsOneRankDoes) {
  for (const int64_t ranks : {1, 2, 3, 4, 8}) {
    ShardedSetting set{.ranks = ranks};
    set.model.layers = 2;
    const Weights expected = train_on_one_rank(set, Summed::EachStep);
    expect_sums_train_as(expected, set, {});
    for (const int64_t bytes : kBuckets)
      for (const bool overlap : {false, true}) expect_sums_train_as(expected, set, {bytes, overlap});
  }
}

TEST(L17_DataParallel, MicroBatchesAndEveryCheckpointing) {
  const std::vector<std::function<void(Transformer&)>> cuts{
      [](Transformer&) {},
      [](Transformer& m) {
        m.segments = {{1, Keep::Input}, {2, Keep::LessAttention}};
      },
      [](Transformer& m) {
        m.segments = {{3, Keep::Input}};
      },
      [](Transformer& m) { m.from_the_start = true; }};
  for (const int64_t k : {1, 2, 3}) {
    ShardedSetting set{.ranks = 2, .micro_batches = k, .steps = 3, .batch = 12};
    const Weights expected = train_on_one_rank(set, Summed::EachStep);
    for (const auto& cut : cuts) {
      set.prepare = cut;
      expect_sums_train_as(expected, set, {});
      for (const bool overlap : {false, true}) expect_sums_train_as(expected, set, {3000, overlap});
    }
  }
}

TEST(L17_DataParallel, EveryOptimizerAndDevice) {
  const auto run = [](const char* device, const MakeOptimizer& make) {
    ShardedSetting set{.ranks = 3, .micro_batches = 2, .steps = 3, .batch = 6, .device = device};
    set.model.layers = 1;
    const Weights expected = train_on_one_rank(set, Summed::EachStep, make);
    expect_sums_train_as(expected, set, {}, make);
    for (const bool overlap : {false, true}) expect_sums_train_as(expected, set, {3000, overlap}, make);
  };
  run("cpu", [](Parameters& p) { return std::make_unique<Sgd>(p, SgdArgs{.momentum = 0.9f}); });
  run("cpu", [](Parameters& p) { return std::make_unique<Adafactor>(p); });
  run("emu", make_adamw);
}

// Sums are made in fp32 and rounded once: so does the reference.
TEST(L17_DataParallel, InEveryPrecision) {
  for (const char* recipe : {"mixed", "mixed-fp16", "zero", "half"}) {
    ShardedSetting set{.ranks = 3, .micro_batches = 2, .steps = 4, .batch = 12, .max_norm = 0};
    set.model.layers = 1, set.model.precision = precision_recipe(recipe);
    set.prepare = [](Transformer&) { start_loss_scaling(current().device, 1024); };
    Weights masters;
    const auto look = [&](Transformer& m, Optimizer&) {
      for (const Parameter& p : m.parameters) masters.push_back(to_host<double>(p.kept()));
    };
    const Weights expected = train_on_one_rank(set, Summed::EachStep, make_adamw, look);
    for (const BucketSetting& how : std::vector<BucketSetting>{{}, {2000}, {2000, true}})
      run_cluster(cluster_of(set), [&](Comm& comm) {
        train_with_sums(set, comm, how, [&](Transformer& model, GradientBuckets*) {
          expect_weights(model, expected, how.text() + recipe);
          size_t i = 0;
          for (const Parameter& p : model.parameters)
            EXPECT_EQ(to_host<double>(p.kept()), masters[i++])
                << recipe << ", " << how.text() << ", " << p.name;
        });
      });
  }
}

TEST(L17_DataParallel, ClippingIsThatOfOneRank) {
  for (const double most : {0.05, 1e3}) {
    ShardedSetting set{.ranks = 3, .steps = 3, .batch = 12, .max_norm = most};
    expect_sums_train_as(train_on_one_rank(set, Summed::EachStep), set, {});
    expect_sums_train_as(train_on_one_rank(set, Summed::EachStep), set, {3000, true});
  }
}

// A rank sends 2 (N-1)/N of all elements in a step, however many micro-batches there are.
TEST(L17_DataParallel, SendsWhatTheFormulaSays) {
  for (const int64_t ranks : {1, 2, 3, 4, 8})
    for (const int64_t k : {1, 2})
      for (const int64_t bytes : {0, 4, 3000, 1 << 20})
        for (const bool overlap : {false, true}) {
          if (overlap && bytes == 0) continue;
          const ShardedSetting set{
              .ranks = ranks, .micro_batches = k, .steps = 2, .batch = 16, .device = "meta"};
          if (set.batch % (ranks * k)) continue;
          run_cluster(cluster_of(set), [&](Comm& comm) {
            train_with_sums(set, comm, {bytes, overlap}, [&](Transformer& model, GradientBuckets* buckets) {
              if (!buckets) return;
              const int64_t psi = buckets->numel(), padding = psi - model.parameters.numel();
              EXPECT_EQ(psi % ranks, 0);
              EXPECT_GE(padding, 0);
              EXPECT_LT(padding, ranks * buckets->buckets());
              EXPECT_EQ(comm.traffic().elements, 2 * 2 * psi * (ranks - 1) / ranks)
                  << bytes << " N " << ranks;
              EXPECT_EQ(comm.traffic().bytes, 4 * comm.traffic().elements);
            });
          });
        }
}
TEST(L17_DataParallel, OneByOneTheElementsAreTheSameAndTheMessagesMore) {
  const ShardedSetting set{.ranks = 2, .steps = 1, .batch = 4, .device = "meta"};
  run_cluster(cluster_of(set), [&](Comm& comm) {
    int64_t messages = 0;
    train_with_sums(set, comm, {}, [&](Transformer& model, GradientBuckets*) {
      int64_t psi = 0;
      for (const Parameter& p : model.parameters) psi += round_up(p.value.numel(), 2);
      EXPECT_LE(std::abs(comm.traffic().elements - psi), int64_t(model.parameters.size()));
      messages = comm.traffic().messages;
    });
    train_with_sums(set, comm, {1 << 20}, [&](Transformer&, GradientBuckets* b) {
      EXPECT_EQ(b->buckets(), 1);
      EXPECT_LT(10 * (comm.traffic().messages - messages), messages);
    });
  });
}

// "of `bucket_bytes` or a little more": by less than the parameter that was put in last; and the last
// parameters are in the first bucket, so that a bucket can be summed while the first layers have no gradient.
TEST(L17_Buckets, AreAsLargeAsTheyShouldBe) {
  for (const Precision& t : {Precision{}, mixed(DType::BF16), uniform(DType::BF16)})
    for (const int64_t bytes : {1, 4 * (119 + 118), 1000, 5000, 1 << 20})
      run_cluster({.ranks = 2}, [&](Comm& comm) {
        Parameters parameters;
        std::vector<Parameter*> all;
        for (int i = 0; i < 20; ++i) all.push_back(&parameters.add(std::to_string(i), {100 + i}, t));
        const GradientBuckets buckets(comm, parameters, bytes);
        int64_t expected = 1, filled = 0;
        for (size_t i = 20; i-- > 0;) {
          const bool next = filled >= bytes;
          if (next) ++expected, filled = 0;
          filled += all[i]->leaf.shape.bytes(t.gradient);
          if (i < 19) {
            const bool shared = &all[i]->leaf.grad.storage() == &all[i + 1]->leaf.grad.storage();
            EXPECT_EQ(shared, !next) << bytes << ", parameter " << i;
          }
        }
        EXPECT_EQ(buckets.buckets(), expected) << bytes;
        EXPECT_EQ(current().device.meter().now()[Kind::Gradient], size_of(t.gradient) * buckets.numel())
            << bytes;
      });
}

// Gradients from before the buckets are not in them; and when the buckets are gone, nobody tells them
// anything.
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
      EXPECT_TRUE(a.leaf.empty);
      EXPECT_NE(refusal([&] { buckets.sum(); }), "");
      pass();
      EXPECT_EQ(to_host<double>(a.leaf.grad), (std::vector<double>{2, 2, 2}));
    }
    EXPECT_TRUE(a.leaf.on_final == nullptr);
    EXPECT_FALSE(a.leaf.grad.defined());
    pass();
    EXPECT_EQ(to_host<double>(a.leaf.grad), (std::vector<double>{2, 2, 2}));
  });
}

TEST(L17_Buckets, BeginWithTheLastParameters) {
  run_cluster({.ranks = 2}, [&](Comm& comm) {
    Parameters parameters;
    Parameter &a = parameters.add("a", {50}, {}), &b = parameters.add("b", {50}, {}),
              &c = parameters.add("c", {60}, {});
    const GradientBuckets buckets(comm, parameters, 400);
    EXPECT_EQ(&b.leaf.grad.storage(), &c.leaf.grad.storage());
    EXPECT_NE(&a.leaf.grad.storage(), &c.leaf.grad.storage());
  });
}

// Gradients are those of the model, in one buffer a bucket, for as long as the buckets live.
TEST(L17_Buckets, HoldTheGradientsAsLongAsTheyLive) {
  run_cluster({.ranks = 2}, [&](Comm& comm) {
    Parameters parameters;
    Parameter &a = parameters.add("a", {3}, {}), &b = parameters.add("b", {2}, {});
    a.assign({1, 2, 3}), b.assign({4, 5});
    const auto pass = [&] {
      parameters.zero_grad();
      Tape t, u;
      t.make_current();
      Tensor y = scale(a.value, double(1 + comm.rank()));
      const Tensor ones = from_host<float>(current().device, {1, 1, 1}, {3}, DType::F32, Kind::Data, "1");
      t.backward(y, ones);
      u.make_current();
      const Tensor two = from_host<float>(current().device, {2, 2}, {2}, DType::F32, Kind::Data, "2");
      y = scale(b.value, 1);
      u.backward(y, two);
    };
    {
      GradientBuckets buckets(comm, parameters, 1000);
      for (int i = 0; i < 2; ++i) {
        pass();
        buckets.sum();
        EXPECT_EQ(&a.leaf.grad.storage(), &b.leaf.grad.storage());
        EXPECT_EQ(to_host<double>(a.leaf.grad), (std::vector<double>{3, 3, 3}));
        EXPECT_EQ(to_host<double>(b.leaf.grad), (std::vector<double>{4, 4}));
      }
    }
    EXPECT_EQ(current().device.meter().now()[Kind::Gradient], 0) << "they take theirs with them";
    pass();
    EXPECT_EQ(to_host<double>(a.leaf.grad), std::vector<double>(3, double(1 + comm.rank())));
    parameters.drop_grad();
    EXPECT_EQ(current().device.meter().now()[Kind::Gradient], 0);
  });
}

}  // namespace
}  // namespace gradus
