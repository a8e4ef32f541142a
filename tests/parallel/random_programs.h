// Random programs for the ranks of a cluster, good ones: every wait ends. They say what is begun and waited
// for, and in which order; what the calls carry is up to the test.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "src/core/rng.h"
#include "src/parallel/comm/comm.h"
#include "src/tensor/context.h"

namespace gradus {

// A call: of all ranks, or one rank's side of a message.
struct Op {
  enum class What : uint8_t { AllReduce, ReduceScatter, AllGather, Broadcast, Barrier, Send, Recv };
  What what = What::Barrier;
  DType dtype = DType::F32;
  int64_t n = 0;      // elements; where there are parts and a whole, of a part
  int64_t other = 0;  // the root, or the other rank of a message
  int64_t rank = -1;  // whose it is; -1: of all
  int64_t pair = -1;  // the message's other side
  bool is_message() const { return what == What::Send || what == What::Recv; }
  bool sums() const { return what == What::AllReduce || what == What::ReduceScatter; }
  int64_t x_numel(int64_t ranks) const { return what == What::ReduceScatter ? n * ranks : n; }
  int64_t y_numel(int64_t ranks) const { return what == What::AllGather ? n * ranks : n; }
  bool has_y() const { return what == What::ReduceScatter || what == What::AllGather; }
  // What the offers' texts call numel.
  int64_t numel(int64_t ranks) const { return std::max(x_numel(ranks), y_numel(ranks)); }
};

inline const char* offer_name(Op::What what) {
  constexpr const char* names[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                   "barrier",    "send",           "recv"};
  return names[int(what)];
}

struct Act {  // of one rank
  int64_t op;
  bool waits;  // for what was begun; a barrier is not waited for, it waits itself
};

struct Program {
  int64_t ranks = 1;
  std::vector<Op> ops;  // in the order in which they are begun
  std::vector<std::vector<Act>> acts;
};

inline std::unique_ptr<Work> begin(Comm& comm, const Op& op, const Tensor& x, const Tensor& y) {
  switch (op.what) {
    case Op::What::AllReduce: return comm.all_reduce(x);
    case Op::What::ReduceScatter: return comm.reduce_scatter(x, y);
    case Op::What::AllGather: return comm.all_gather(x, y);
    case Op::What::Broadcast: return comm.broadcast(x, op.other);
    case Op::What::Barrier: comm.barrier(); return nullptr;
    case Op::What::Send: return comm.send(x, op.other);
    case Op::What::Recv: return comm.recv(x, op.other);
  }
  return nullptr;
}

inline DType random_dtype(Rng& rng, bool sums) {
  constexpr DType all[] = {DType::F32, DType::BF16, DType::F16, DType::I32,
                           DType::U8,  DType::F64,  DType::I64, DType::I8};
  return all[rng.below(sums ? 3 : 8)];
}

// Why there is no deadlock: a wait comes, in the order of the whole program, after every begin that it needs,
// so the rank that is furthest behind can always go on.
class ProgramMaker {
 public:
  ProgramMaker(Rng& rng, int64_t ranks, std::vector<int64_t> sizes, bool messages = true)
      : rng_(rng), sizes_(std::move(sizes)), messages_(messages && ranks > 1), flying_(size_t(ranks)) {
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
    for (const auto& [way, open] : open_)
      while (!open_[way].empty()) add_side(way.first, way.second, !is_send(open_[way].front()));
    for (size_t r = 0; r < flying_.size(); ++r)
      while (wait_for_one(r)) {
      }
    return program_;
  }

 private:
  bool is_send(int64_t op) const { return program_.ops[size_t(op)].what == Op::What::Send; }

  void add_collective() {
    Op op;
    op.what = Op::What(rng_.below(5));
    op.n = op.what == Op::What::Barrier ? 0 : sizes_[rng_.below(sizes_.size())];
    if (op.what == Op::What::Barrier)
      op.dtype = DType::U8;
    else
      op.dtype = random_dtype(rng_, op.sums());
    if (op.what == Op::What::Broadcast) op.other = int64_t(rng_.below(uint64_t(program_.ranks)));
    for (int64_t r = 0; r < program_.ranks; ++r) begin_act(op, r);
    program_.ops.push_back(op);
  }

  void add_message() {
    const int64_t from = int64_t(rng_.below(uint64_t(program_.ranks)));
    const int64_t step = 1 + int64_t(rng_.below(uint64_t(program_.ranks - 1)));
    add_side(from, (from + step) % program_.ranks, rng_.below(2) == 0);
  }

  // The sender's or the receiver's side: the other side of the oldest that lacks it, or that of a new
  // message.
  void add_side(int64_t from, int64_t to, bool send) {
    std::deque<int64_t>& open = open_[{from, to}];
    Op op;
    if (!open.empty() && is_send(open.front()) != send) {
      op = program_.ops[size_t(open.front())];
      op.pair = open.front();
      program_.ops[size_t(open.front())].pair = int64_t(program_.ops.size());
      open.pop_front();
    } else {
      op.n = sizes_[rng_.below(sizes_.size())];
      op.dtype = random_dtype(rng_, false);
      open.push_back(int64_t(program_.ops.size()));
    }
    op.what = send ? Op::What::Send : Op::What::Recv;
    op.rank = send ? from : to;
    op.other = send ? to : from;
    begin_act(op, op.rank);
    program_.ops.push_back(op);
  }

  void begin_act(const Op& op, int64_t rank) {
    const int64_t id = int64_t(program_.ops.size());
    program_.acts[size_t(rank)].push_back({id, false});
    if (op.what != Op::What::Barrier) flying_[size_t(rank)].push_back(id);
  }

  // False if nothing that it could wait for flies.
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
  std::vector<std::vector<int64_t>> flying_;                         // of each rank, what is not waited for
  std::map<std::pair<int64_t, int64_t>, std::deque<int64_t>> open_;  // of each way, sides without the other
};

}  // namespace gradus
