// Gradients that are summed one by one or in buckets train as one rank does, to the bit.
#include "tests/dist/parallel_training.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

TEST(L17_DataParallel, TrainsAsOneRankDoes) { expect_all_train(all_settings(), ways_of(all_buckets())); }
TEST(L17_DataParallel, OnTheEmulatedGpu) {
  expect_all_train(settings_on_emu(), ways_of<BucketSetting>({{}, {3000}, {3000, true}}));
}

// Every rank has whole matrices and whole norms.
TEST(L17_DataParallel, ClippingAndOptimizersOfMatricesAreThoseOfOneRank) {
  const ShardedSetting clipped{.ranks = 3, .micro_batches = 2, .steps = 3, .batch = 12, .max_norm = 0.05};
  ShardedSetting adafactor = clipped;
  adafactor.make = optimizer_of<Adafactor>();
  expect_all_train({clipped, adafactor}, ways_of(all_buckets()));
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
        int64_t expected = 1, filled = 0, elements = 0, padded = 0;  // to a multiple of the ranks
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
    EXPECT_EQ(current().device.meter().now()[Kind::Gradient], 0) << "they take theirs with them";
    pass();
    EXPECT_EQ(to_host<double>(a.leaf.grad), (std::vector<double>{2, 2, 2}));
  });
}

}  // namespace
}  // namespace gradus
