// Random programs of collectives and messages, on views of larger tensors, several works in flight: each byte
// against a reference, and what was sent against the ring's formulas.
#include <gtest/gtest.h>

#include "src/dist/cluster.h"
#include "tests/dist/collective_reference.h"

namespace gradus {
namespace {

Tensor view(const Tensor& memory, const Place& r, uint64_t style) {
  if (style == 1) {  // a view of a view
    const int64_t before = r.begin / 2, all = memory.numel() - before;
    return memory.narrow(before, all).narrow(r.begin - before, r.count);
  }
  const Tensor x = memory.narrow(r.begin, r.count);
  if (style == 2) return x.reshape({r.count, 1});
  return style == 3 && r.count % 3 == 0 ? x.reshape({3, r.count / 3}) : x;
}

Bytes read(const Tensor& x) {
  Bytes out(size_t(x.bytes()));
  x.device().copy_out(out.data(), x.in().p, x.bytes());
  return out;
}

std::string text(const Op& op) {
  return std::string(offer_name(op.what)) + " n=" + std::to_string(op.n) + " " + name_of(op.dtype);
}

void play(Comm& comm, const Case& c, std::vector<Traffic>& traffic) {
  const size_t rank = size_t(comm.rank());
  Device& device = current().device;
  std::map<DType, Tensor> memory;
  for (const auto& [t, bytes] : c.before[rank]) {
    Tensor all(device, {int64_t(bytes.size()) / size_of(t)}, t, Kind::Other, "memory");
    device.copy_in(all.set().p, bytes.data(), int64_t(bytes.size()));
    memory[t] = all;
  }
  std::vector<std::unique_ptr<Work>> works(c.program.ops.size());
  for (const Act& act : c.program.acts[rank]) {
    const Op& op = c.program.ops[size_t(act.op)];
    const Side& side = c.sides[size_t(act.op)][rank];
    Tensor x, y;
    if (op.what != Op::What::Barrier) x = view(memory[op.dtype], side.x, side.style);
    if (op.has_y()) y = view(memory[op.dtype], side.y, side.style ^ 1);
    if (!act.waits) {
      if (side.refills) device.copy_in(x.set().p, side.fresh.data(), x.bytes());
      works[size_t(act.op)] = begin(comm, op, x, y);
      continue;
    }
    works[size_t(act.op)]->wait();
    works[size_t(act.op)].reset();
    if (!device.has_data()) continue;
    EXPECT_EQ(read(op.has_y() ? y : x), side.expected) << text(op) << ", rank " << rank << ", op " << act.op;
  }
  traffic[rank] = comm.traffic();
  if (!device.has_data()) return;
  for (const auto& [t, all] : memory) EXPECT_EQ(read(all), c.after[rank].at(t)) << "all " << name_of(t);
}

// What a rank sends in an op: in a sum the parts that others own, in a gathering its own part to each other
// rank, so with equal parts (N-1)/N of the elements each way; a broadcast is passed on from the root by all
// but the last. N-1 messages each way, of a broadcast one; none for a barrier.
Traffic sent(const Op& op, int64_t rank, int64_t ranks) {
  const int64_t others = ranks - 1, all = op.numel(ranks), own = part_of(all, rank, ranks).count;
  const auto traffic = [&](int64_t elements, int64_t messages) {
    return Traffic{elements, elements * size_of(op.dtype), messages};
  };
  switch (op.what) {
    case Op::What::AllReduce: return traffic(all - own + others * own, 2 * others);
    case Op::What::ReduceScatter: return traffic(all - own, others);
    case Op::What::AllGather: return traffic(others * own, others);
    case Op::What::Broadcast: {
      const bool last = (rank + 1) % ranks == op.other;
      return last ? Traffic{} : traffic(all, 1);
    }
    case Op::What::Send: return rank == op.rank ? traffic(all, 1) : Traffic{};
    default: return {};
  }
}

void expect_sent(const Program& p, const std::vector<Traffic>& traffic) {
  for (size_t r = 0; r < traffic.size(); ++r) {
    Traffic expected;
    for (const Op& op : p.ops) {
      const Traffic t = sent(op, int64_t(r), p.ranks);
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
  const CaseMaker maker(rng, ProgramMaker(rng, ranks, sizes).make(calls));
  std::vector<Traffic> traffic(maker.made_.before.size()), on_meta = traffic;
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

TEST(L17_ProgramsOfCollectives, EachByteIsAsComputedOnTheHost) {
  for (uint64_t i = 0; i < 1000 && !HasFailure(); ++i) expect_program("cpu", i, kSmall);
}

TEST(L17_ProgramsOfCollectives, LargeOnesAreMadeInPieces) {
  for (uint64_t i = 1000; i < 1012 && !HasFailure(); ++i) expect_program("cpu", i, kLarge);
}

TEST(L17_ProgramsOfCollectives, OnTheEmulatedGpu) {
  for (uint64_t i = 2000; i < 2100 && !HasFailure(); ++i) expect_program("emu", i, kSmall);
  expect_program("emu", 2100, kLarge);
}

}  // namespace
}  // namespace gradus
