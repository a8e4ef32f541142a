// Random programs of collectives and messages, of all ranks and of overlapping groups, on views of larger
// tensors, with several calls in flight: each byte is compared with a reference, and the amounts sent with
// the ring's formulas.
#include <gtest/gtest.h>

#include "src/parallel/comm/cluster.h"
#include "tests/parallel/play_program.h"

namespace gradus {
namespace {

// What a rank sends in an op: in a sum the parts that others own, in a gather its own part to each other
// rank, so with equal parts (N-1)/N of the elements each way; a broadcast is passed on from the root by all
// ranks but the last. N-1 messages each way, one for a broadcast, none for a barrier.
Sent sent(const Op& op, int64_t rank, const Ranks& members) {
  const int64_t ranks = op.ranks, mine = place_in(members, rank);
  if (mine == ranks) return {};
  const int64_t others = ranks - 1, all = op.numel(), own = part_of(all, mine, ranks).count;
  const auto traffic = [&](int64_t elements, int64_t messages) {
    return Sent{elements, elements * size_of(op.dtype), messages};
  };
  switch (op.what) {
    case Op::What::AllReduce:
    case Op::What::AllReduceMax: return traffic(all - own + others * own, 2 * others);
    case Op::What::ReduceScatter: return traffic(all - own, others);
    case Op::What::AllGather: return traffic(others * own, others);
    case Op::What::Broadcast: {
      const bool last = members[size_t((mine + 1) % ranks)] == op.other;
      return last ? Sent{} : traffic(all, 1);
    }
    case Op::What::Send: return rank == op.rank ? traffic(all, 1) : Sent{};
    default: return {};
  }
}

void expect_sent(const Program& p, const std::vector<Sent>& traffic) {
  for (size_t r = 0; r < traffic.size(); ++r) {
    Sent expected;
    for (const Op& op : p.ops) {
      const Sent t = sent(op, int64_t(r), p.groups[op.group]);
      expected = {expected.elements + t.elements, expected.bytes + t.bytes, expected.messages + t.messages};
    }
    EXPECT_EQ(traffic[r].elements, expected.elements) << "rank " << r;
    EXPECT_EQ(traffic[r].bytes, expected.bytes) << "rank " << r;
    EXPECT_EQ(traffic[r].messages, expected.messages) << "rank " << r;
  }
}

void expect_program(const char* device, uint64_t number, const std::vector<int64_t>& sizes) {
  SCOPED_TRACE(std::string(device) + ", program " + std::to_string(number));
  Rng rng(17, number);
  const int64_t ranks = 1 + int64_t(rng.below(6)), calls = 1 + int64_t(rng.below(sizes[0] > 1000 ? 4 : 16));
  const int64_t splits = number % 2 == 0 ? 0 : 2 + int64_t(rng.below(3));
  const CaseMaker maker(rng, ProgramMaker(rng, ranks, sizes, true, splits).make(calls));
  std::vector<Sent> traffic(maker.made_.before.size()), on_meta = traffic;
  run_cluster({.ranks = ranks, .device = device}, [&](Comm& comm) { play(comm, maker.made_, traffic); });
  expect_sent(maker.made_.program, traffic);
  run_cluster({.ranks = ranks, .device = "meta"}, [&](Comm& comm) { play(comm, maker.made_, on_meta); });
  for (size_t r = 0; r < traffic.size(); ++r) {
    EXPECT_EQ(on_meta[r].elements, traffic[r].elements);
    EXPECT_EQ(on_meta[r].bytes, traffic[r].bytes);
    EXPECT_EQ(on_meta[r].messages, traffic[r].messages);
  }
}

const std::vector<int64_t> kSmall{0, 1, 2, 3, 5, 7, 12, 16, 33, 61, 64, 100, 255};
const std::vector<int64_t> kLarge{65'536, 65'537, 65'535, 131'075};

// Large tensors are summed in pieces.
TEST(L17_ProgramsOfCollectives, EachByteIsAsComputedOnTheHost) {
  const struct {
    const char* device;
    uint64_t first, count;
    const std::vector<int64_t>& sizes;
  } programs[] = {{"cpu", 0, 2000, kSmall},
                  {"cpu", 5000, 12, kLarge},
                  {"emu", 6000, 100, kSmall},
                  {"emu", 6101, 1, kLarge}};
  for (const auto& p : programs)
    for (uint64_t i = p.first; i < p.first + p.count && !HasFailure(); ++i)
      expect_program(p.device, i, p.sizes);
}

}  // namespace
}  // namespace gradus
