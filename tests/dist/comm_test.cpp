// What the collectives do, on a simulated cluster.
#include "src/dist/comm.h"

#include <gtest/gtest.h>

#include "src/dist/cluster.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

Tensor numbers(const std::vector<double>& values, DType t = DType::F32) {
  return from_host(current().device, values, {int64_t(values.size())}, t, Kind::Other, "x");
}

TEST(L17_Comm, AllReduceAddsInRankOrder) {
  for (const char* device : {"cpu", "emu"})
    for (const int64_t ranks : {1, 2, 3, 4, 8}) {
      // Numbers of which the order of additions shows.
      const auto value = [&](int64_t rank, int64_t i) {
        return float(1 + rank) * 1e7f / float(3 + i) + float(i);
      };
      run_cluster({.ranks = ranks, .device = device}, [&](Comm& comm) {
        for (const int64_t n : {1, 2, 7, 64, 257}) {
          std::vector<double> mine, expected;
          for (int64_t i = 0; i < n; ++i) {
            mine.push_back(value(comm.rank(), i));
            float sum = value(0, i);
            for (int64_t r = 1; r < ranks; ++r) sum += value(r, i);
            expected.push_back(sum);
          }
          const Tensor x = numbers(mine);
          comm.all_reduce(x)->wait();
          EXPECT_EQ(to_host<double>(x), expected) << device << ", " << ranks << " ranks, " << n;
        }
      });
    }
}

TEST(L17_Comm, PartsAndWholes) {
  run_cluster({.ranks = 3}, [](Comm& comm) {
    const double r = double(comm.rank());
    const Tensor x = numbers({r, r + 1, r + 2, r + 3, r + 4, r + 5}), part = numbers({0, 0});
    comm.reduce_scatter(x, part)->wait();
    EXPECT_EQ(to_host<double>(part), (std::vector<double>{3 + 6 * r, 6 + 6 * r}));
    const Tensor whole = numbers({0, 0, 0, 0, 0, 0});
    comm.all_gather(part, whole)->wait();
    EXPECT_EQ(to_host<double>(whole), (std::vector<double>{3, 6, 9, 12, 15, 18}));
    comm.broadcast(part, 1)->wait();
    EXPECT_EQ(to_host<double>(part), (std::vector<double>{9, 12}));
  });
}

TEST(L17_Comm, MessagesArriveInOrder) {
  run_cluster({.ranks = 2}, [](Comm& comm) {
    const Tensor a = numbers({1, 2}), b = numbers({3, 4, 5}, DType::BF16);
    if (comm.rank() == 0) {
      comm.send(a, 1)->wait();
      comm.send(b, 1);
    } else {
      Tensor x = numbers({0, 0}), y = numbers({0, 0, 0}, DType::BF16);
      const auto first = comm.recv(x, 0), second = comm.recv(y, 0);
      second->wait();
      first->wait();
      EXPECT_EQ(to_host<double>(x), (std::vector<double>{1, 2}));
      EXPECT_EQ(to_host<double>(y), (std::vector<double>{3, 4, 5}));
    }
  });
}

// "A second wait() does nothing."
TEST(L17_Comm, ASecondWaitDoesNothing) {
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

TEST(L17_Comm, WhoDoesSomethingElseIsNamed) {
  const auto run = [](auto body) { return [=] { run_cluster({.ranks = 3}, body); }; };
  expect_refused(
      "rank 0: its collective number 2 is all_reduce of 5 fp32, that of rank 2 is all_reduce of 4 fp32",
      run([](Comm& comm) {
        comm.barrier();
        comm.all_reduce(Tensor(current().device, {comm.rank() == 2 ? 4 : 5}, DType::F32, Kind::Other, "x"))
            ->wait();
      }));
  expect_refused(
      "deadlock: no rank can go on; rank 0 waits in barrier; rank 1 has ended; rank 2 waits in barrier",
      run([](Comm& comm) {
        if (comm.rank() != 1) comm.barrier();
      }));
  expect_refused("rank 1: no luck", run([](Comm& comm) {
                   if (comm.rank() == 1) fail("no luck");
                   comm.barrier();
                 }));
}

TEST(L17_Comm, TheClockFollowsTheRing) {
  const Network net{.name = "test", .source = "", .link = {1e-3, 1e6}};
  std::vector<double> computed{0, 0, 0, 0};
  const ClusterRun run = run_cluster(
      {.ranks = 4, .network = net, .computed = [&](int64_t r, Context&) { return computed[size_t(r)]; }},
      [&](Comm& comm) {
        const Tensor x(current().device, {1000}, DType::F32, Kind::Other, "x");
        computed[size_t(comm.rank())] += 0.5 + double(comm.rank());  // the last one begins at 3.5
        const auto work = comm.all_reduce(x);
        computed[size_t(comm.rank())] += 0.002;
        work->wait();
      });
  for (const double t : run.seconds) EXPECT_DOUBLE_EQ(t, 3.5 + 6 * (1e-3 + 1000.0 / 1e6));
}

}  // namespace
}  // namespace gradus
