// What a simulated rank has of its own (its context, memory and time), and what remains the caller's.
#include "src/parallel/comm/cluster.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "src/core/timing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

Tensor numbers(const std::vector<double>& values, DType t = DType::F32) {
  return from_host(current().device, values, {int64_t(values.size())}, t, Kind::Other, "x");
}

TEST(L17_Cluster, EachRankHasItsOwnContext) {
  Context older;
  const Context newer;
  older.make_current();
  for (const uint64_t seed : {1, 77}) {
    std::set<Context*> contexts;
    run_cluster({.ranks = 3, .device = "emu", .seed = seed}, [&](Comm& comm) {
      Context& given = current();
      contexts.insert(&given);
      EXPECT_EQ(given.device.name(), std::string("emu"));
      EXPECT_EQ(given.seed, seed);
      comm.barrier();
      EXPECT_EQ(&current(), &given);
      {
        const Context inner("meta");
        comm.barrier();
        EXPECT_EQ(&current(), &inner);
        if (comm.rank() != 1) given.make_current();
        comm.barrier();
        EXPECT_EQ(&current(), comm.rank() == 1 ? &inner : &given);
      }
      EXPECT_EQ(&current(), &given) << "rank " << comm.rank() << "'s own context, after a second one ended";
    });
    EXPECT_EQ(contexts.size(), 3u);
    EXPECT_EQ(&current(), &older) << "the caller's context";
  }
  expect_refused("no luck", [] { run_cluster({.ranks = 2}, [](Comm&) { fail("no luck"); }); });
  EXPECT_EQ(&current(), &older);
}

TEST(L17_Cluster, ARankWithoutMemorySaysSo) {
  const Context before;
  const auto body = [](Comm& comm) {
    const int64_t n = comm.rank() == 1 ? 8 << 20 : 8;
    const Tensor x(current().device, {n}, DType::F32, Kind::Other, "too large");
    comm.barrier();
  };
  run_cluster({.ranks = 3, .device = "meta", .memory_budget = 64 << 20}, body);  // 32 MiB fit
  std::string text;
  try {
    run_cluster({.ranks = 3, .device = "meta", .memory_budget = 16 << 20}, body);
  } catch (const OutOfMemory& e) {
    text = e.what();
  }
  EXPECT_TRUE(text.starts_with("rank 1: ")) << text;
  EXPECT_NE(text.find("too large"), std::string::npos) << text;
  EXPECT_EQ(&current(), &before);
}

TEST(L17_Cluster, WhatIsOverLetsGoOfItsTensors) {
  run_cluster({.ranks = 3}, [](Comm& comm) {
    const auto tensor = [](int64_t n) { return Tensor(current().device, {n}, DType::F32, Kind::Other, "x"); };
    const Tensor x = tensor(4), whole = tensor(12), y = tensor(4);
    const auto first = comm.all_reduce(x), second = comm.all_gather(x, whole),
               third = comm.reduce_scatter(whole, y), fourth = comm.broadcast(y, 1);
    fourth->wait(), third->wait(), second->wait(), first->wait();
    EXPECT_FALSE(x.shares_storage());
    EXPECT_FALSE(y.shares_storage());
    EXPECT_FALSE(whole.shares_storage());
  });
}

// "A second wait() does nothing."
TEST(L17_Cluster, ASecondWaitDoesNothing) {
  run_cluster({.ranks = 2}, [](Comm& comm) {
    Tensor x = numbers({1, 2}), y = numbers({5, 6});
    const auto sum = comm.all_reduce(x);
    sum->wait();
    const double rank = double(comm.rank());
    copy_from_host(x, std::vector<double>{rank, rank});
    sum->wait();
    EXPECT_EQ(to_host<double>(x), (std::vector<double>{rank, rank}));
    if (comm.rank() == 0) {
      comm.send(x, 1);
      comm.send(y, 1);
    } else {
      const auto first = comm.recv(x, 0);
      first->wait();
      EXPECT_EQ(to_host<double>(x), (std::vector<double>{0, 0}));
      first->wait();
      EXPECT_EQ(to_host<double>(x), (std::vector<double>{0, 0}));
      comm.recv(x, 0)->wait();
      EXPECT_EQ(to_host<double>(x), (std::vector<double>{5, 6}));
    }
  });
}

TEST(L17_Cluster, ADeadlockOfManyRanksIsToldOfTheFirstOnes) {
  const auto told = [](int64_t ranks) {
    return refusal([&] {
      run_cluster({.ranks = ranks, .device = "meta"}, [](Comm& comm) {
        if (comm.rank() != 1) comm.barrier();
      });
    });
  };
  std::string eight = "deadlock: no rank can go on; rank 0 waits in barrier; rank 1 has ended";
  for (int r = 2; r < 8; ++r) eight += "; rank " + std::to_string(r) + " waits in barrier";
  EXPECT_EQ(told(8), eight);
  std::string of_many = "deadlock: no rank can go on; rank 0 waits in barrier";  // lists waiting ranks only
  for (int r = 2; r < 9; ++r) of_many += "; rank " + std::to_string(r) + " waits in barrier";
  EXPECT_EQ(told(9), of_many + "; and so on");
  EXPECT_EQ(told(60), of_many + "; and so on");
}

TEST(L17_Cluster, ByDefaultTheTimeIsMeasured) {
  const ClusterRun ran = run_cluster({.ranks = 3}, [](Comm& comm) {
    const double begin = comm.seconds();
    if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (comm.rank() == 2) {
      comm.send(Tensor(current().device, {1}, DType::F32, Kind::Other, "x"), 0)->wait();
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      EXPECT_GE(comm.seconds() - begin, 0.3) << "the message is sent while the rank computes";
    }
    if (comm.rank() == 0) comm.recv(Tensor(current().device, {1}, DType::F32, Kind::Other, "y"), 2)->wait();
  });
  EXPECT_LT(ran.seconds[0], 0.1);  // the time of the other ranks does not count
  EXPECT_GE(ran.seconds[1], 0.1);
  EXPECT_LT(ran.seconds[1], 0.3);
  EXPECT_GE(ran.seconds[2], 0.3);
}

// Computation outside of any range, also after the last one.
TEST(L17_Cluster, WhatIsComputedLastIsOnTheTimeline) {
  double now = 0;
  const ClusterRun ran =
      run_cluster({.ranks = 1, .computed = [&](int64_t, Context&) { return now; }, .keep_timeline = true},
                  [&](Comm& comm) {
                    comm.barrier();
                    now = 3;
                  });
  ASSERT_EQ(ran.timeline.size(), 1u);
  EXPECT_EQ(ran.timeline[0].name, "compute");
  EXPECT_EQ(ran.timeline[0].end, 3);
}

// Ranks that only communicate have almost no computing time, whatever it costs to move their data here.
TEST(L17_Cluster, MovingTheDataIsNotMeasured) {
  const double before = seconds_now();
  double moving = 0;
  const ClusterRun ran = run_cluster({.ranks = 4}, [&](Comm& comm) {
    const Tensor x(current().device, {1 << 20}, DType::F32, Kind::Other, "x");
    comm.barrier();
    if (comm.rank() == 0) moving = seconds_now();
    for (int i = 0; i < 5; ++i) comm.all_reduce(x)->wait();
  });
  moving = seconds_now() - std::max(before, moving);
  for (const double seconds : ran.seconds) EXPECT_LT(seconds, moving / 2);
}

}  // namespace
}  // namespace gradus
