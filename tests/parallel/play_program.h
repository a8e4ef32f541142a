// Plays a random program on one rank, and compares each byte with the reference.
#pragma once
#include <gtest/gtest.h>

#include "tests/parallel/collective_reference.h"

namespace gradus {

inline Tensor view(const Tensor& memory, const Place& r, uint64_t style) {
  if (style == 1) {  // a view of a view
    const int64_t before = r.begin / 2, all = memory.numel() - before;
    return memory.narrow(before, all).narrow(r.begin - before, r.count);
  }
  const Tensor x = memory.narrow(r.begin, r.count);
  if (style == 2) return x.reshape({r.count, 1});
  return style == 3 && r.count % 3 == 0 ? x.reshape({3, r.count / 3}) : x;
}

inline Bytes read(const Tensor& x) {
  Bytes out(size_t(x.bytes()));
  x.device().copy_out(out.data(), x.in().p, x.bytes());
  return out;
}

inline std::string text(const Op& op) {
  return std::string(offer_name(op.what)) + " n=" + std::to_string(op.n) + " " + name_of(op.dtype);
}

inline void play(Comm& comm, const Case& c, std::vector<Sent>& traffic) {
  const size_t rank = size_t(comm.rank());
  Device& device = current().device;
  std::map<DType, Tensor> memory;
  for (const auto& [t, bytes] : c.before[rank]) {
    Tensor all(device, {int64_t(bytes.size()) / size_of(t)}, t, Kind::Other, "memory");
    device.copy_in(all.set().p, bytes.data(), int64_t(bytes.size()));
    memory[t] = all;
  }
  Comms comms(comm, c.program);
  std::vector<std::unique_ptr<Work>> works(c.program.ops.size());
  for (const Act& act : c.program.acts[rank]) {
    const Op& op = c.program.ops[size_t(act.op)];
    const Side& side = c.sides[size_t(act.op)][rank];
    Tensor x, y;
    if (op.what != Op::What::Barrier) x = view(memory[op.dtype], side.x, side.style);
    if (op.has_y()) y = view(memory[op.dtype], side.y, side.style ^ 1);
    if (!act.waits) {
      if (side.refills) device.copy_in(x.set().p, side.fresh.data(), x.bytes());
      works[size_t(act.op)] = begin(comms, op, x, y);
      continue;
    }
    works[size_t(act.op)]->wait();
    works[size_t(act.op)].reset();
    if (!device.has_data()) continue;
    EXPECT_EQ(read(op.has_y() ? y : x), side.expected) << text(op) << ", rank " << rank << ", op " << act.op;
  }
  traffic[rank] = comms.sent();
  if (!device.has_data()) return;
  for (const auto& [t, all] : memory) EXPECT_EQ(read(all), c.after[rank].at(t)) << "all " << name_of(t);
}

}  // namespace gradus
