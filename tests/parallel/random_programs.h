// Random programs for the ranks of a cluster, without deadlocks: every wait ends. They say which calls are
// begun and waited for, and in which order; the test chooses the data.
#pragma once
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "src/core/rng.h"
#include "src/parallel/comm/comm.h"
#include "src/tensor/context.h"

namespace gradus {

// A call: a collective, or one rank's side of a message.
struct Op {
  enum class What : uint8_t {
    AllReduce,
    ReduceScatter,
    AllGather,
    Broadcast,
    Barrier,
    AllReduceMax,
    Send,
    Recv
  };
  What what = What::Barrier;
  DType dtype = DType::F32;
  int64_t n = 0;      // elements; if there are parts and a whole: elements per part
  int64_t other = 0;  // the root, or the other rank of a message
  int64_t rank = -1;  // the rank of one side of a message; -1: a collective of the group
  int64_t pair = -1;  // the op of the message's other side
  int64_t tag = 0;
  size_t group = 0;   // index of the program's group
  int64_t ranks = 1;  // of the group
  bool is_message() const { return what == What::Send || what == What::Recv; }
  bool reduces() const {
    return what == What::AllReduce || what == What::ReduceScatter || what == What::AllReduceMax;
  }
  int64_t x_numel() const { return what == What::ReduceScatter ? n * ranks : n; }
  int64_t y_numel() const { return what == What::AllGather ? n * ranks : n; }
  bool has_y() const { return what == What::ReduceScatter || what == What::AllGather; }
  int64_t numel() const { return std::max(x_numel(), y_numel()); }  // the number in the offers' texts
};

inline const char* offer_name(Op::What what) {
  constexpr const char* names[] = {"all_reduce", "reduce_scatter",           "all_gather", "broadcast",
                                   "barrier",    "all_reduce, the largest,", "send",       "recv"};
  return names[int(what)];
}

struct Act {  // by one rank
  int64_t op;
  bool waits;  // for the op; a barrier is not waited for, it waits itself
};

using Ranks = std::vector<int64_t>;  // of the run, in order

struct Program {
  int64_t ranks = 1;
  // How all ranks are split first: the group of each rank. Group 0 has all ranks.
  std::vector<std::vector<size_t>> splits;
  std::vector<Ranks> groups;
  std::vector<Op> ops;  // in the order in which they begin
  std::vector<std::vector<Act>> acts;
};

inline int64_t place_in(const Ranks& ranks, int64_t rank) {
  return std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
}

// A rank's Comms, by group; nullptr for groups that it is not in.
class Comms {
 public:
  Comms(Comm& all, const Program& p) : all_(all), parts_(p.groups.size()) {
    for (size_t s = 0; s < p.splits.size(); ++s) {
      const size_t group = p.splits[s][size_t(all.rank())];
      parts_[group] = all.split("split " + std::to_string(s), int64_t(group) * 3);  // any colour
    }
  }
  Comm& of(const Op& op) { return op.group == 0 ? all_ : *parts_[op.group]; }
  Sent sent() const {
    Sent sum = all_.sent();
    for (const auto& part : parts_)
      if (part)
        sum = {sum.elements + part->sent().elements, sum.bytes + part->sent().bytes,
               sum.messages + part->sent().messages};
    return sum;
  }

 private:
  Comm& all_;
  std::vector<std::unique_ptr<Comm>> parts_;
};

inline std::unique_ptr<Work> begin(Comms& comms, const Op& op, const Tensor& x, const Tensor& y) {
  Comm& comm = comms.of(op);
  const int64_t other = place_in(comm.members(), op.other);
  switch (op.what) {
    case Op::What::AllReduce: return comm.all_reduce(x);
    case Op::What::AllReduceMax: return comm.all_reduce(x, Reduce::Max);
    case Op::What::ReduceScatter: return comm.reduce_scatter(x, y);
    case Op::What::AllGather: return comm.all_gather(x, y);
    case Op::What::Broadcast: return comm.broadcast(x, other);
    case Op::What::Barrier: comm.barrier(); return nullptr;
    case Op::What::Send: return comm.send(x, other, op.tag);
    case Op::What::Recv: return comm.recv(x, other, op.tag);
  }
  return nullptr;
}

inline DType random_dtype(Rng& rng, bool reduces) {
  constexpr DType all[] = {DType::F32, DType::BF16, DType::F16, DType::I32,
                           DType::U8,  DType::F64,  DType::I64, DType::I8};
  return all[rng.below(reduces ? 3 : 8)];
}

// Why there is no deadlock: in the order of the whole program, a wait comes after every begin that it needs,
// so the rank that is furthest behind can always go on.
class ProgramMaker {
 public:
  ProgramMaker(Rng& rng, int64_t ranks, std::vector<int64_t> sizes, bool messages = true, int64_t splits = 0)
      : rng_(rng), sizes_(std::move(sizes)), messages_(messages && ranks > 1), flying_(size_t(ranks)) {
    program_.groups = {first_ranks(ranks)};
    for (int64_t s = 0; s < splits; ++s) add_split(ranks);
    program_.ranks = ranks;
    program_.acts.resize(size_t(ranks));
  }

  Program make(int64_t calls) {
    for (int64_t i = 0; i < calls; ++i) {
      if (messages_ && rng_.below(3) == 0)
        add_message();
      else
        add_collective();
      for (size_t r = 0; r < flying_.size(); ++r)
        while (rng_.below(3) == 0 && wait_for_one(r)) {
        }
    }
    for (auto& [way, open] : open_)
      while (!open.empty()) add_side(way, !is_send(open.front()));
    for (size_t r = 0; r < flying_.size(); ++r)
      while (wait_for_one(r)) {
      }
    return program_;
  }

 private:
  bool is_send(int64_t op) const { return program_.ops[size_t(op)].what == Op::What::Send; }

  struct Way {
    size_t group;
    int64_t from, to, tag;
    auto operator<=>(const Way&) const = default;
  };

  // Into some of up to three groups.
  void add_split(int64_t ranks) {
    const size_t first = program_.groups.size(), most = 1 + rng_.below(3);
    std::vector<size_t> split;
    std::map<size_t, Ranks> members;
    for (int64_t r = 0; r < ranks; ++r) members[rng_.below(most)].push_back(r);
    split.resize(size_t(ranks));
    for (const auto& [number, group] : members) {
      for (const int64_t r : group) split[size_t(r)] = program_.groups.size();
      program_.groups.push_back(group);
    }
    program_.splits.push_back(split);
    check(program_.groups.size() > first, "a split makes a group at least");
  }
  size_t random_group() { return rng_.below(program_.groups.size()); }

  void add_collective() {
    Op op;
    op.group = random_group();
    const Ranks& members = program_.groups[op.group];
    op.ranks = int64_t(members.size());
    op.what = Op::What(rng_.below(6));
    op.n = op.what == Op::What::Barrier ? 0 : sizes_[rng_.below(sizes_.size())];
    op.dtype = op.what == Op::What::Barrier ? DType::U8 : random_dtype(rng_, op.reduces());
    if (op.what == Op::What::Broadcast) op.other = members[rng_.below(members.size())];
    for (const int64_t r : members) begin_act(op, r);
    program_.ops.push_back(op);
  }

  void add_message() {
    const size_t group = random_group();
    const Ranks& members = program_.groups[group];
    if (members.size() == 1) return;
    const size_t from = rng_.below(members.size()),
                 to = (from + 1 + rng_.below(members.size() - 1)) % members.size();
    const int64_t tag = rng_.below(3) == 0 ? int64_t(1 + rng_.below(2)) * 100'000 : 0;
    add_side({group, members[from], members[to], tag}, rng_.below(2) == 0);
  }

  // The sender's or the receiver's side: the other side of the oldest message that lacks it, or one side of a
  // new message.
  void add_side(const Way& way, bool send) {
    std::deque<int64_t>& open = open_[way];
    Op op;
    if (!open.empty() && is_send(open.front()) != send) {
      op = program_.ops[size_t(open.front())];
      op.pair = open.front();
      program_.ops[size_t(open.front())].pair = int64_t(program_.ops.size());
      open.pop_front();
    } else {
      op.n = sizes_[rng_.below(sizes_.size())];
      op.dtype = random_dtype(rng_, false);
      op.group = way.group, op.tag = way.tag;
      op.ranks = int64_t(program_.groups[way.group].size());
      open.push_back(int64_t(program_.ops.size()));
    }
    op.what = send ? Op::What::Send : Op::What::Recv;
    op.rank = send ? way.from : way.to;
    op.other = send ? way.to : way.from;
    begin_act(op, op.rank);
    program_.ops.push_back(op);
  }

  void begin_act(const Op& op, int64_t rank) {
    const int64_t id = int64_t(program_.ops.size());
    program_.acts[size_t(rank)].push_back({id, false});
    if (op.what != Op::What::Barrier) flying_[size_t(rank)].push_back(id);
  }

  // Returns false if no call that it could wait for is in flight.
  bool wait_for_one(size_t rank) {
    std::vector<size_t> can;
    for (size_t i = 0; i < flying_[rank].size(); ++i) {
      const Op& op = program_.ops[size_t(flying_[rank][i])];
      if (op.what != Op::What::Recv || op.pair >= 0) can.push_back(i);
    }
    if (can.empty()) return false;
    const size_t i = can[rng_.below(can.size())];
    program_.acts[rank].push_back({flying_[rank][i], true});
    flying_[rank].erase(flying_[rank].begin() + int64_t(i));
    return true;
  }

  Rng& rng_;
  std::vector<int64_t> sizes_;
  bool messages_;
  Program program_;
  std::vector<std::vector<int64_t>> flying_;  // by rank: calls that are not waited for yet
  std::map<Way, std::deque<int64_t>> open_;   // by way: sides without the other side
};

}  // namespace gradus
