// Calls that no rank may make, and impossible clusters: each is rejected with its own message, by the rank
// that makes the call.
#include <gtest/gtest.h>

#include "src/parallel/comm/cluster.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

Tensor tensor(int64_t n, DType t = DType::F32) { return Tensor(current().device, {n}, t, Kind::Other, "x"); }

// Checks that rank 1 of 3 is rejected in `call`, with a message that contains all `parts`, while the others
// wait.
template <class F>
void expect_bad(std::vector<std::string> parts, F&& call) {
  for (const char* device : {"cpu", "meta"}) {
    const Context before;
    const std::string text = refusal([&] {
      run_cluster({.ranks = 3, .device = device}, [&](Comm& comm) {
        if (comm.rank() == 1) call(comm);
        comm.barrier();
      });
    });
    EXPECT_TRUE(text.starts_with("rank 1: ")) << text << "; expected: " << parts[0];
    EXPECT_EQ(text.find("its collective number"), std::string::npos) << text;
    for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
    EXPECT_EQ(&current(), &before);
  }
}

TEST(L17_BadArguments, RanksThatAreNotThere) {
  for (const int64_t other : {-1, 3, 100}) {
    const std::string number = std::to_string(other);
    expect_bad({"broadcast", number}, [&](Comm& c) { c.broadcast(tensor(2), other); });
    expect_bad({"send", number}, [&](Comm& c) { c.send(tensor(2), other); });
    expect_bad({"recv", number}, [&](Comm& c) { c.recv(tensor(2), other); });
  }
  expect_bad({"send", "1"}, [](Comm& c) { c.send(tensor(2), 1); });
  expect_bad({"recv", "1"}, [](Comm& c) { c.recv(tensor(2), 1); });
}

TEST(L17_BadArguments, SumsOfOtherDTypes) {
  for (const DType t : {DType::F64, DType::I64, DType::I32, DType::I8, DType::U8}) {
    expect_bad({"all_reduce", name_of(t)}, [&](Comm& c) { c.all_reduce(tensor(3, t)); });
    expect_bad({"reduce_scatter", name_of(t)},
               [&](Comm& c) { c.reduce_scatter(tensor(3, t), tensor(1, t)); });
  }
}

TEST(L17_BadArguments, PartsThatDoNotMakeTheWhole) {
  for (const int64_t whole : {0, 2, 4, 5, 7, 12})
    for (const int64_t part : {1, 2, 3}) {
      if (part * 3 == whole) continue;
      expect_bad({"reduce_scatter", std::to_string(whole)},
                 [&](Comm& c) { c.reduce_scatter(tensor(whole), tensor(part)); });
      expect_bad({"all_gather", std::to_string(whole)},
                 [&](Comm& c) { c.all_gather(tensor(part), tensor(whole)); });
    }
  // The same number of bytes, or of elements, with a different dtype.
  expect_bad({"reduce_scatter"}, [](Comm& c) { c.reduce_scatter(tensor(6), tensor(2, DType::BF16)); });
  expect_bad({"all_gather"}, [](Comm& c) { c.all_gather(tensor(2), tensor(6, DType::I32)); });
  expect_bad({"all_gather"}, [](Comm& c) { c.all_gather(tensor(4, DType::BF16), tensor(6)); });
}

TEST(L17_BadArguments, PartsAtTheWrongPlaceOfTheWhole) {
  for (int64_t begin = 0; begin <= 8; ++begin) {
    if (begin == 3 || begin == 1 + 3) continue;  // the right place within wholes that begin at 0 and at 1
    for (const int64_t whole : {0, 1}) {
      const int64_t part = begin;
      if (part + 3 <= whole || part >= whole + 9) continue;  // they do not overlap
      const auto both = [&](auto call) {
        const Tensor all = tensor(11);
        call(all.narrow(whole, 9), all.narrow(part, 3));
      };
      expect_bad({"reduce_scatter"},
                 [&](Comm& c) { both([&](const Tensor& y, const Tensor& x) { c.reduce_scatter(y, x); }); });
      expect_bad({"all_gather"},
                 [&](Comm& c) { both([&](const Tensor& y, const Tensor& x) { c.all_gather(x, y); }); });
    }
  }
}

TEST(L17_BadArguments, PartsBesideTheWholeAreFine) {
  run_cluster({.ranks = 3}, [](Comm& comm) {
    const Tensor all = tensor(16);
    const Tensor whole = all.narrow(3, 9);
    for (const Tensor& part : {all.narrow(0, 3), all.narrow(12, 3), whole.narrow(3 * comm.rank(), 3)}) {
      comm.reduce_scatter(whole, part)->wait();
      comm.all_gather(part, whole)->wait();
    }
    const Tensor nothing = whole.narrow(4, 0);
    comm.reduce_scatter(nothing, whole.narrow(2, 0))->wait();
    comm.all_gather(whole.narrow(7, 0), nothing)->wait();
  });
}

TEST(L17_BadArguments, UndefinedTensors) {
  const Tensor none;
  expect_bad({""}, [&](Comm& c) { c.all_reduce(none); });
  expect_bad({""}, [&](Comm& c) { c.broadcast(none, 0); });
  expect_bad({""}, [&](Comm& c) { c.reduce_scatter(tensor(c.size()), none); });
  expect_bad({""}, [&](Comm& c) { c.reduce_scatter(none, tensor(1)); });
  expect_bad({""}, [&](Comm& c) { c.all_gather(none, tensor(c.size())); });
  expect_bad({""}, [&](Comm& c) { c.all_gather(tensor(1), none); });
  expect_bad({""}, [&](Comm& c) { c.send(none, 0); });
  expect_bad({"recv"}, [&](Comm& c) { c.recv(none, 0); });
}

TEST(L17_BadArguments, ClustersThatCannotBe) {
  const auto refused = [](const ClusterArgs& args, const std::string& part) {
    int64_t ran = 0;
    const Context before;
    expect_refused(part, [&] { run_cluster(args, [&](Comm&) { ++ran; }); });
    EXPECT_EQ(ran, 0);
    EXPECT_EQ(&current(), &before);
  };
  refused({.ranks = 0}, "0");
  refused({.ranks = -3}, "-3");
  refused({.ranks = 2, .device = "cuda"}, "cuda");
  refused({.ranks = 2, .device = "tpu"}, "tpu");
  const Network nodes{.name = "of nodes", .source = "", .link = {1, 1}, .per_node = 4, .between = {1, 1}};
  for (const int64_t ranks : {5, 6, 7, 9, 10, 11}) {
    expect_refused(std::to_string(ranks) + " ranks", [&] {
      run_cluster({.ranks = ranks, .network = nodes}, [](Comm& comm) { comm.barrier(); });
    });
    expect_refused(std::to_string(ranks),
                   [&] { collective_seconds(nodes, Collective::AllReduce, ranks, 1); });
  }
  for (const int64_t ranks : {1, 2, 3, 4, 8, 12})
    run_cluster({.ranks = ranks, .network = nodes}, [](Comm&) {});
}

TEST(L17_BadArguments, AnUnknownNetworkIsRefusedWithAListOfThem) {
  const std::string text = refusal([] { network_called("carrier pigeons"); });
  EXPECT_NE(text.find("carrier pigeons"), std::string::npos) << text;
  EXPECT_GE(published_networks().size(), 2u);
  for (const Network& n : published_networks()) {
    EXPECT_NE(text.find(n.name), std::string::npos) << text;
    EXPECT_EQ(&network_called(n.name), &n);
    EXPECT_FALSE(n.source.empty());
  }
}

}  // namespace
}  // namespace gradus
