// Groups of ranks, and messages between two ranks: the members of a group, rejected calls, the results of
// all_to_all and exchange.
#include "src/parallel/comm/cluster.h"
#include "tests/parallel/exchanges.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

Tensor tensor(int64_t n, DType t = DType::F32) { return Tensor(current().device, {n}, t, Kind::Other, "x"); }

using Body = std::function<void(Comm&)>;
std::string ended(int64_t ranks, const Body& body, const char* device = "cpu") {
  const Context before;
  const std::string text = refusal([&] { run_cluster({.ranks = ranks, .device = device}, body); });
  EXPECT_EQ(&current(), &before);
  return text;
}
void expect_ended(int64_t ranks, const std::vector<std::string>& parts, const Body& body) {
  for (const char* device : {"cpu", "meta"}) {
    const std::string text = ended(ranks, body, device);
    for (const std::string& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
}

TEST(L17_Groups, HaveTheRanksOfTheirColourInOrder) {
  run_cluster({.ranks = 7}, [](Comm& all) {
    EXPECT_EQ(all.members(), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(all.where(), "");
    const auto part = all.split("odd and even", 1000 + all.rank() % 2);
    const std::vector<int64_t> mine =
        all.rank() % 2 ? std::vector<int64_t>{1, 3, 5} : std::vector<int64_t>{0, 2, 4, 6};
    EXPECT_EQ(part->members(), mine);
    EXPECT_EQ(part->size(), int64_t(mine.size()));
    EXPECT_EQ(mine[size_t(part->rank())], all.rank());
    EXPECT_EQ(part->where(), all.rank() % 2 ? " in group 'odd and even' of ranks 1, 3, 5"
                                            : " in group 'odd and even' of ranks 0, 2, 4, 6");
    // A group of a group, with the last ranks first by colour; and one rank alone.
    const auto halves = part->split("halves", part->rank() < 2 ? 9 : 4);
    EXPECT_EQ(halves->members(), part->rank() < 2 ? std::vector<int64_t>(mine.begin(), mine.begin() + 2)
                                                  : std::vector<int64_t>(mine.begin() + 2, mine.end()));
    const auto alone = all.split("alone", all.rank());
    alone->barrier();
    EXPECT_EQ(alone->size(), 1);
    EXPECT_EQ(all.sent().messages + part->sent().messages, 0) << "splits are not counted";
  });
}

// Ranks begin the collectives of overlapping groups in different orders, and wait for them in different
// orders.
TEST(L17_Groups, HaveNoOrderAmongThem) {
  for (uint64_t i = 0; i < 100; ++i)
    run_cluster({.ranks = 2 + int64_t(i % 5)}, [&](Comm& all) { expect_any_order(all, i); });
}

TEST(L17_Groups, WhatCannotBeSplit) {
  expect_ended(3, {"rank 1: split into 'pairs': colour -1", "0 or more"},
               [](Comm& c) { c.split("pairs", c.rank() == 1 ? -1 : 0); });
  expect_ended(3, {"rank 0: split: a group needs a name"}, [](Comm& c) { c.split("", 0); });
  expect_ended(3, {"its collective number 1 is ", "split into 'pairs'", "barrier"}, [](Comm& c) {
    if (c.rank() == 1)
      c.split("pairs", 0);
    else
      c.barrier();
  });
  expect_ended(3, {"its collective number 1 is ", "split into 'pairs'", "split into 'odds'"},
               [](Comm& c) { c.split(c.rank() == 1 ? "pairs" : "odds", 0); });
  expect_ended(3, {"deadlock", "rank 0 waits in split into 'pairs'", "rank 2 has ended"}, [](Comm& c) {
    if (c.rank() != 2) c.split("pairs", 0);
  });
}

TEST(L17_Groups, NothingIsSplitWhileSomethingIsOpen) {
  const auto begin = [](Comm& c, int what) -> std::unique_ptr<Work> {
    if (what == 0) return c.all_reduce(tensor(3));
    if (what == 1) return c.send(tensor(3), (c.rank() + 1) % c.size());
    return c.recv(tensor(3), (c.rank() + 2) % c.size());
  };
  for (const int what : {0, 1, 2})
    expect_ended(3, {"split into 'pairs': 1 calls of this rank have begun and are not waited for"},
                 [&](Comm& c) {
                   const auto work = begin(c, what);
                   c.split("pairs", 0);
                 });
  run_cluster({.ranks = 2}, [](Comm& c) {
    const auto over = c.all_reduce(tensor(3));
    over->wait();
    c.split("pairs", 0);  // a call that was waited for is not open
  });
  expect_ended(3, {"split into 'halves': 2 calls of this rank in group 'pairs' of ranks 0, 1, 2 have begun"},
               [&](Comm& c) {
                 const auto part = c.split("pairs", 0);
                 const auto one = part->all_reduce(tensor(3)), other = part->all_reduce(tensor(4));
                 c.split("others", 0);  // no call on the Comm of all ranks is open
                 part->split("halves", 0);
               });
}

TEST(L17_Groups, SentencesNameGroupAndCall) {
  const auto pairs = [](Comm& c) { return c.split("pairs", c.rank() % 2); };
  // The rank that comes last reports it.
  expect_ended(4,
               {"its collective number 1 in group 'pairs' of ranks 1, 3 is", "all_reduce of 3 fp32",
                "all_reduce of 1 fp32"},
               [&](Comm& c) { pairs(c)->all_reduce(tensor(c.rank() % 2 * c.rank()))->wait(); });
  expect_ended(
      4,
      {"deadlock: no rank can go on", "rank 0 waits in all_reduce of 2 fp32 in group 'pairs' of ranks 0, 2",
       "rank 2 waits in recv of 2 fp32 from rank 0, tag 9 in group 'pairs' of ranks 0, 2",
       "rank 3 has ended"},
      [&](Comm& c) {
        const auto part = pairs(c);
        if (c.rank() == 0) part->all_reduce(tensor(2))->wait();
        if (c.rank() == 2) part->recv(tensor(2), 0, 9)->wait();
      });
  expect_ended(4,
               {"rank 1 began all_reduce of 2 fp32, its collective number 1 in group 'pairs'; rank 3 has "
                "ended without it"},
               [&](Comm& c) {
                 const auto part = pairs(c);
                 if (c.rank() == 1) part->all_reduce(tensor(2));
               });
  expect_ended(4, {"broadcast: rank 2 does not exist; there are 2 in group 'pairs'"},
               [&](Comm& c) { pairs(c)->broadcast(tensor(2), 2); });
}

TEST(L17_Groups, AMessageThatNobodyReceivesIsReported) {
  expect_ended(3, {"rank 0 sent 5 bf16 to rank 2, tag 3; no rank has received it"}, [](Comm& c) {
    if (c.rank() == 0) c.send(tensor(5, DType::BF16), 2, 3)->wait();
    if (c.rank() == 0) c.send(tensor(5, DType::BF16), 2, 4)->wait();
    if (c.rank() == 2) c.recv(tensor(5, DType::BF16), 0, 4)->wait();
  });
  expect_ended(3, {"rank 2 sent 1 fp32 to rank 0 in group 'all'; no rank has received it"}, [](Comm& c) {
    const auto part = c.split("all", 5);
    if (c.rank() == 2) part->send(tensor(1), 0)->wait();
  });
  expect_ended(3, {"rank 1: send: tag -1; tags are 0 or more"}, [](Comm& c) {
    if (c.rank() == 1) c.send(tensor(1), 0, -1);
  });
  expect_ended(3, {"rank 1: recv: the tensor is undefined"}, [](Comm& c) {
    if (c.rank() == 1) c.recv({}, 0);
  });
}

TEST(L17_Groups, OutliveWhatIsBegunWithThem) {
  expect_ended(2, {"an operation is waited for after its Comm has ended"}, [](Comm& c) {
    const auto work = c.split("ends", 0)->all_reduce(tensor(3));
    work->wait();
  });
}

TEST(L17_Groups, OfManyRanksThoseThatWaitAreNamed) {
  expect_ended(16, {"rank 12 waits in recv of 2 fp32 from rank 3; and so on"}, [](Comm& c) {
    if (c.rank() == 12) c.recv(tensor(2), 3)->wait();
  });
}

// A body may catch the exception that unwinds it; then every call that it begins fails.
TEST(L17_Groups, ARankThatIsUnwoundBeginsNothing) {
  int64_t begun = 0;
  expect_ended(2, {"deadlock"}, [&](Comm& c) {
    if (c.rank() == 0) {
      try {
        c.recv(tensor(1), 1)->wait();
      } catch (...) {
        c.send(tensor(1), 1)->wait();
        ++begun;
      }
    }
    if (c.rank() == 1) c.recv(tensor(7), 0)->wait();
  });
  EXPECT_EQ(begun, 0);
}

TEST(L17_AllToAll, BringsEachPartToItsRank) {
  for (const char* device : {"cpu", "emu", "meta"})
    for (uint64_t i = 0; i < 60; ++i) {
      Rng rng(31, i);
      const int64_t ranks = 1 + int64_t(rng.below(5));
      const auto counts = random_counts(rng, ranks), again = random_counts(rng, ranks);
      run_cluster({.ranks = ranks, .device = device}, [&](Comm& comm) {
        expect_all_to_all(comm, counts);
        expect_exchange(comm);
        expect_all_to_all(*comm.split("all", 0), again);
      });
    }
}

TEST(L17_AllToAll, CountsThatDoNotFit) {
  const auto of_two = [](const std::vector<int64_t>& to_0, const std::vector<int64_t>& from_0) {
    return [=](Comm& c) {
      const auto sum = [](const std::vector<int64_t>& n) { return n[0] + n[1]; };
      const std::vector<int64_t> two{1, 1};
      const auto& to = c.rank() == 0 ? to_0 : two;
      const auto& from = c.rank() == 0 ? from_0 : two;
      c.all_to_all(tensor(sum(to)), to, tensor(sum(from)), from)->wait();
    };
  };
  expect_ended(2, {"rank 1: all_to_all: recv of 1 fp32 from rank 0: what was sent are 3 fp32"},
               of_two({1, 3}, {1, 1}));
  expect_ended(2, {"rank 1: all_to_all: recv of 1 fp32 from rank 0: what was sent are 0 fp32"},
               of_two({1, 0}, {1, 1}));
  expect_ended(2, {"rank 0: all_to_all: recv of 0 fp32 from rank 1: what was sent are 1 fp32"},
               of_two({1, 1}, {1, 0}));
  const auto call = [](std::vector<int64_t> to, std::vector<int64_t> from, DType t) {
    return [=](Comm& c) { c.all_to_all(tensor(4), to, tensor(4, t), from)->wait(); };
  };
  expect_ended(2, {"all_to_all: the counts for x add up to 5, and it has 4"},
               call({1, 4}, {2, 2}, DType::F32));
  expect_ended(2, {"all_to_all: the counts for y add up to 3, and it has 4"},
               call({2, 2}, {3, 0}, DType::F32));
  expect_ended(2, {"all_to_all: the counts for x add up to 4", "below 0"}, call({-1, 5}, {2, 2}, DType::F32));
  expect_ended(2, {"all_to_all: 3 counts for x, and there are 2 ranks"}, call({1, 1, 2}, {2, 2}, DType::F32));
  expect_ended(2, {"all_to_all: x is undefined"}, [](Comm& c) {
    c.all_to_all({}, {0, 0}, tensor(0), {0, 0});
  });
  expect_ended(2, {"all_to_all: x is fp32, y is bf16"}, call({2, 2}, {2, 2}, DType::BF16));
}

TEST(L17_AllReduceMax, OfNaNIsNaN) {
  run_cluster({.ranks = 3}, [](Comm& comm) {
    for (const DType t : {DType::F32, DType::BF16, DType::F16}) {
      std::vector<double> mine{double(comm.rank()), -1.0 - double(comm.rank()), -INFINITY, 0};
      if (comm.rank() == 1) mine[3] = NAN;
      const Tensor x = from_host(current().device, mine, {4}, t, Kind::Other, "x");
      comm.all_reduce(x, Reduce::Max)->wait();
      const std::vector<double> got = to_host<double>(x);
      EXPECT_EQ(std::vector<double>(got.begin(), got.begin() + 3), (std::vector<double>{2, -1, -INFINITY}));
      EXPECT_TRUE(std::isnan(got[3]));
    }
  });
}

}  // namespace
}  // namespace gradus
