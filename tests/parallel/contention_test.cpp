// Times of messages and collectives that need the same link: closed forms.
#include <gtest/gtest.h>

#include "src/parallel/comm/cluster.h"

namespace gradus {
namespace {

using Body = std::function<void(Comm&)>;
Tensor tensor(int64_t n, DType t = DType::F32) { return Tensor(current().device, {n}, t, Kind::Other, "x"); }

// The seconds of each rank's clock, without computation.
std::vector<double> seconds_of(const Network& network, int64_t ranks, const Body& body) {
  const auto nothing = [](int64_t, Context&) { return 0.0; };
  return run_cluster({.ranks = ranks, .device = "meta", .network = network, .computed = nothing}, body)
      .seconds;
}
void expect_seconds(const std::vector<double>& seconds, double expected) {
  for (const double s : seconds) EXPECT_NEAR(s, expected, 1e-12 * expected);
}

// A link carries one message at a time in each direction: sending different data to each of the others takes
// as long as gathering data from them.
TEST(L17_Contention, AllToAllTakesAsLongAsAGathering) {
  const Network& pcie = network_called("pcie");
  constexpr int64_t kRanks = 8, kElements = 31'500'000;
  const double message = pcie.link.latency + double(kElements) / pcie.link.bandwidth;
  const std::vector<int64_t> each(kRanks, kElements);
  const auto bytes = [](int64_t n) { return tensor(n, DType::U8); };
  expect_seconds(
      seconds_of(pcie, kRanks,
                 [&](Comm& c) {
                   c.all_to_all(bytes(kRanks * kElements), each, bytes(kRanks * kElements), each)->wait();
                 }),
      7 * message);
  EXPECT_NEAR(7 * message, 7.040e-3, 1e-6);
  expect_seconds(
      seconds_of(pcie, kRanks,
                 [&](Comm& c) { c.all_gather(bytes(kElements), bytes(kRanks * kElements))->wait(); }),
      7 * message);
  // The same with messages one by one, and with data that only one rank receives.
  expect_seconds(seconds_of(pcie, kRanks,
                            [&](Comm& c) {
                              for (int64_t i = 1; i < kRanks; ++i)
                                c.send(bytes(kElements), (c.rank() + i) % kRanks);
                              for (int64_t i = 1; i < kRanks; ++i)
                                c.recv(bytes(kElements), (c.rank() + kRanks - i) % kRanks)->wait();
                            }),
                 7 * message);
  const std::vector<double> to_one = seconds_of(pcie, kRanks, [&](Comm& c) {
    if (c.rank() > 0) c.send(bytes(kElements), 0);
    for (int64_t from = 1; c.rank() == 0 && from < kRanks; ++from) c.recv(bytes(kElements), from)->wait();
  });
  EXPECT_NEAR(to_one[0], 7 * message, 1e-12);
  EXPECT_EQ(to_one[1], 0) << "a sender does not wait";
}

// A message or collective keeps a link busy from its beginning.
TEST(L17_Contention, ALinkIsBusyWhileItCarries) {
  const Network slow{.name = "slow", .source = "", .link = {0, 1}};  // one byte per second
  std::vector<double> computed(3);
  const auto clock = [&](int64_t r, Context&) { return computed[size_t(r)]; };
  const auto run = [&](const Body& body) {
    computed.assign(3, 0);
    return run_cluster({.ranks = 3, .device = "meta", .network = slow, .computed = clock}, body).seconds;
  };
  const auto bytes = [](int64_t n) { return tensor(n, DType::U8); };
  // 15 bytes from time 0 on; a byte that is sent at 12 comes after them.
  const std::vector<double> two = run([&](Comm& c) {
    if (c.rank() == 2) computed[2] = 12;
    if (c.rank() == 1) c.send(bytes(15), 0);
    if (c.rank() == 2) c.send(bytes(1), 0);
    if (c.rank() == 0) {
      c.recv(bytes(15), 1)->wait();
      EXPECT_EQ(c.seconds(), 15);
      c.recv(bytes(1), 2)->wait();
    }
  });
  EXPECT_EQ(two[0], 16);
  // 10 bytes to rank 1 from time 0 on; a collective that rank 1 joins at 5 begins when they have arrived.
  const std::vector<double> both = run([&](Comm& c) {
    const auto pair = c.split("pair", c.rank() / 2);
    if (c.rank() == 2) c.send(bytes(10), 1);
    if (c.rank() == 1) computed[1] = 5;
    if (c.rank() < 2) pair->all_gather(bytes(4), bytes(8))->wait();
    if (c.rank() == 1) c.recv(bytes(10), 2)->wait();
  });
  EXPECT_EQ(both[1], 14);
}

// Both directions at once: a ring of neighbours in both directions takes the time of two messages, a ring in
// one direction that of one.
TEST(L17_Contention, ALinkCarriesBothWaysAtOnce) {
  const Network& pcie = network_called("pcie");
  const double message = pcie.link.latency + 1e6 / pcie.link.bandwidth;
  const auto ring = [](bool both) {
    return [both](Comm& c) {
      const int64_t right = (c.rank() + 1) % c.size(), left = (c.rank() + c.size() - 1) % c.size();
      const auto x = [] { return tensor(1'000'000, DType::U8); };
      if (both)
        c.exchange({{x(), right}, {x(), left}}, {{x(), left}, {x(), right}})->wait();
      else
        c.exchange({{x(), right}}, {{x(), left}})->wait();
    };
  };
  expect_seconds(seconds_of(pcie, 4, ring(false)), message);
  expect_seconds(seconds_of(pcie, 4, ring(true)), 2 * message);
  // Parts without elements take no time, and every rank's own part stays where it is.
  expect_seconds(seconds_of(pcie, 3,
                            [](Comm& c) {
                              std::vector<int64_t> counts(3, 0);
                              counts[size_t(c.rank())] = 1000;
                              c.all_to_all(tensor(1000), counts, tensor(1000), counts)->wait();
                            }),
                 0);
}

// Eight ranks on eight nodes use the network between nodes; eight ranks on one node use the network within
// it. Groups without common ranks do not wait for each other.
TEST(L17_Contention, TheLinksAreThoseOfTheMembers) {
  const Network& nodes = network_called("nodes");
  const auto all_reduce = [](const Link& link, double ranks, double bytes) {
    return 2 * (ranks - 1) * (link.latency + bytes / ranks / link.bandwidth);
  };
  const auto of_groups = [](const std::function<int64_t(int64_t rank)>& color) {
    return [color](Comm& c) { c.split("some", color(c.rank()))->all_reduce(tensor(1 << 20))->wait(); };
  };
  expect_seconds(seconds_of(nodes, 64, of_groups([](int64_t r) { return r % 8; })),
                 all_reduce(nodes.between, 8, 4 << 20));
  expect_seconds(seconds_of(nodes, 64, of_groups([](int64_t r) { return r / 8; })),
                 all_reduce(nodes.link, 8, 4 << 20));
  expect_seconds(seconds_of(nodes, 64, of_groups([](int64_t r) { return r % 4; })),
                 all_reduce(nodes.link, 2, 4 << 20) + all_reduce(nodes.between, 8, 2 << 20));
  // Nine ranks on two nodes, eight of them on one: a ring over the slower link.
  const std::vector<double> uneven =
      seconds_of(nodes, 16, of_groups([](int64_t r) { return int64_t(r > 8); }));
  EXPECT_NEAR(uneven[0], all_reduce(nodes.between, 9, 4 << 20), 1e-12);
  EXPECT_NEAR(uneven[15], all_reduce(nodes.link, 7, 4 << 20), 1e-12);
}

}  // namespace
}  // namespace gradus
