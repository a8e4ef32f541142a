// The gradient norm when parameters are shards, or copies, on the ranks of some groups.
#include "src/parallel/sharded_grad_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "src/optim/optimizer.h"
#include "src/parallel/comm/cluster.h"
#include "src/parallel/data_parallel.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

using Values = std::vector<double>;

// Whole numbers, so that sums are exact.
double norm_of(Comm& comm, const std::vector<Comm*>& groups, int64_t cuts, int64_t stage) {
  Parameters own;
  own.add("cut", {2}, {}).shard = Shard::of_columns({1, 2 * cuts}, 0, 2);
  own.add("copy", {1}, {});
  const ShardedGradNorm spread(own, groups);
  Sgd optimizer(own);
  for (Parameter& p : own) {
    p.assign(Values(size_t(p.value.numel()), 0));
    const bool cut = p.name == "cut";
    const double g = cut ? double(comm.rank() + 1) : double(10 * (stage + 1));
    p.leaf.grad =
        from_host(current().device, Values(cut ? 2 : 1, g), p.value.shape(), DType::F32, Kind::Gradient, "g");
    p.leaf.written = true;
  }
  optimizer.clip_grad_norm(1e9);
  const double norm = optimizer.scalars().grad_norm;
  optimizer.step(1);
  EXPECT_EQ(to_host<double>(own.find("copy").value)[0], -10.0 * double(stage + 1))
      << "every rank must update its copy";
  own.zero_grad();
  EXPECT_FALSE(own.find("cut").leaf.written);
  return norm;
}

TEST(L19_ShardedGradNorm, PartsOfAllRanksAndCopiesOnce) {
  run_cluster({.ranks = 3}, [](Comm& comm) {
    EXPECT_EQ(norm_of(comm, {&comm}, 3, 0), float(std::sqrt(2.0 * (1 + 4 + 9) + 100)));
  });
  // Four ranks: two groups that divide parameters (cuts), and two stages; each stage has different copies.
  run_cluster({.ranks = 4}, [](Comm& comm) {
    const auto cuts = comm.split("cuts", comm.rank() / 2), stages = comm.split("stages", comm.rank() % 2);
    EXPECT_EQ(norm_of(comm, {cuts.get(), stages.get()}, 2, comm.rank() / 2),
              float(std::sqrt(2.0 * (1 + 4 + 9 + 16) + 100 + 400)));
  });
}

// The optimizer may be made earlier, and destroyed later.
TEST(L19_ShardedGradNorm, IsOfTheOptimizersWhileItLives) {
  run_cluster({.ranks = 2}, [](Comm& comm) {
    Parameters own;
    own.add("cut", {1}, {}).shard = Shard::of_rows({2}, comm.rank(), 1);
    Sgd optimizer(own);
    Parameter& p = *own.begin();
    const auto norm = [&] {
      p.leaf.grad = from_host(current().device, Values{comm.rank() == 0 ? 3.0 : 4.0}, {1}, DType::F32,
                              Kind::Gradient, "g");
      p.leaf.written = true;
      optimizer.clip_grad_norm(1e9);
      return optimizer.scalars().grad_norm;
    };
    int64_t emptied = 0;
    own.on_zero_grad = [&] { ++emptied; };
    EXPECT_EQ(norm(), comm.rank() == 0 ? 3 : 4);
    {
      const ShardedGradNorm sharded(own, {&comm});
      EXPECT_EQ(norm(), 5);
      own.zero_grad();
      EXPECT_EQ(emptied, 1);
      own.drop_grad();
      EXPECT_FALSE(p.leaf.grad.defined());
    }
    EXPECT_EQ(norm(), comm.rank() == 0 ? 3 : 4);
  });
}

// Tensor parallel within data parallel: gradients are summed over one group, norms over the other.
TEST(L19_ShardedGradNorm, GoesWithDataParallel) {
  run_cluster({.ranks = 4}, [](Comm& comm) {
    const auto cuts = comm.split("cuts", comm.rank() / 2), data = comm.split("data", comm.rank() % 2);
    Parameters own;
    own.add("cut", {1}, {}).shard = Shard::of_rows({2}, cuts->rank(), 1);
    Sgd optimizer(own);
    const ShardedGradNorm sharded(own, {cuts.get()});
    Parameter& p = *own.begin();
    p.leaf.grad =
        from_host(current().device, Values{double(comm.rank())}, {1}, DType::F32, Kind::Gradient, "g");
    p.leaf.written = true;
    sum_gradients(*data, own);  // 0 + 2, 1 + 3
    optimizer.clip_grad_norm(1e9);
    EXPECT_EQ(optimizer.scalars().grad_norm, float(std::sqrt(4.0 + 16.0)));
  });
}

TEST(L19_ShardedGradNorm, EndsAsItBegan) {
  run_cluster({.ranks = 2}, [](Comm& comm) {
    Parameters own;
    Parameter& p = own.add("copy", {1}, {});
    {
      const ShardedGradNorm spread(own, {&comm});
      EXPECT_EQ(p.counted, comm.rank() == 0);
      expect_refused("sharded norm: the parameters are divided already",
                     [&] { ShardedGradNorm(own, {&comm}); });
    }
    EXPECT_TRUE(p.counted);
    EXPECT_EQ(*own.shares, nullptr);
    expect_refused("sharded norm: no group of ranks", [&] { ShardedGradNorm(own, {}); });
  });
}

}  // namespace
}  // namespace gradus
