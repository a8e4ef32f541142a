// The times of a random program's ranks, event by event in the order of time: a reference for the clock of a
// simulated cluster.
#pragma once
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "src/parallel/comm/network.h"
#include "tests/parallel/random_programs.h"

namespace gradus {

// The ring among n ranks, step by step: each step takes a latency and the bytes that a rank sends in it.
inline double ring_seconds(const Link& link, Collective what, int64_t n, double bytes) {
  if (n == 1) return 0;
  double seconds = 0;
  const auto steps = [&](double part) {
    for (int64_t i = 0; i < n - 1; ++i) seconds += link.latency + part / link.bandwidth;
  };
  switch (what) {
    case Collective::AllReduce: steps(bytes / double(n)); [[fallthrough]];
    case Collective::ReduceScatter:
    case Collective::AllGather: steps(bytes / double(n)); break;
    case Collective::Broadcast: steps(0), seconds += bytes / link.bandwidth; break;
    case Collective::Barrier: steps(0), steps(0); break;
    default: ADD_FAILURE();
  }
  return seconds;
}

// First within the nodes, then between them. If nodes have different numbers of ranks: between all.
inline double nodes_seconds(const Network& net, Collective what, const Ranks& ranks, double bytes) {
  std::map<int64_t, int64_t> nodes;
  for (const int64_t r : ranks) ++nodes[net.per_node > 0 ? r / net.per_node : 0];
  std::set<int64_t> counts;
  for (const auto& [node, count] : nodes) counts.insert(count);
  const int64_t g = *counts.begin();
  if (nodes.size() == 1) return ring_seconds(net.link, what, g, bytes);
  if (counts.size() > 1) return ring_seconds(net.between, what, int64_t(ranks.size()), bytes);
  const double between = what == Collective::Broadcast ? bytes : bytes / double(g);
  return ring_seconds(net.link, what, g, bytes) +
         ring_seconds(net.between, what, int64_t(nodes.size()), between);
}

inline double message_over(const Network& net, int64_t from, int64_t to, double bytes) {
  const bool same_node = net.per_node == 0 || from / net.per_node == to / net.per_node;
  const Link& link = same_node ? net.link : net.between;
  return link.latency + bytes / link.bandwidth;
}

struct TimedProgram {
  Program program;
  std::vector<std::vector<double>> computes;  // by rank: before each of its acts, and after the last one
};

struct Happening {  // a collective, a message, or computation of a rank
  double begin = 0, end = 0;
};

class Reference {
 public:
  Reference(const Network& network, const TimedProgram& timed)
      : network_(network),
        timed_(timed),
        program_(timed.program),
        ranks_(program_.acts.size()),
        events_(program_.ops.size()) {
    for (size_t r = 0; r < ranks_.size(); ++r) compute(r);
    while (next_step()) {
    }
  }
  double end_of_rank(size_t rank) const { return ranks_[rank].now; }
  Happening of_op(size_t op) const { return events_[op].is; }
  // What the rank computes before its act number i.
  Happening computing(size_t rank, size_t i) const { return ranks_[rank].computing[i]; }

 private:
  struct Rank {
    double now = 0, out_free = 0, in_free = 0;
    size_t act = 0;
    bool in_barrier = false;  // the act has begun, and the rank waits in it
    std::vector<Happening> computing;
    // Messages sent to the rank: when the sender's link begins it, the sender, the op.
    std::set<std::tuple<double, int64_t, size_t>> coming;
  };
  struct Event {  // a collective; or a message, at its send
    size_t came = 0;
    bool over = false;  // for a message: or sent
    double latest = 0, seconds = 0, arrived = 0;
    Happening is;
  };

  void compute(size_t r) {
    Rank& rank = ranks_[r];
    const double seconds = timed_.computes[r][rank.computing.size()];
    rank.computing.push_back({rank.now, rank.now + seconds});
    rank.now += seconds;
  }
  const Act& act(size_t r) const { return program_.acts[r][ranks_[r].act]; }
  size_t op_of(size_t r) const { return size_t(act(r).op); }
  // What a rank waits for; for a recv, the op of the other side.
  const Event& awaited(size_t r) const {
    const Op& op = program_.ops[op_of(r)];
    return events_[op.what == Op::What::Recv ? size_t(op.pair) : op_of(r)];
  }
  bool waits(size_t r) const {
    return (act(r).waits && program_.ops[op_of(r)].what != Op::What::Send) || ranks_[r].in_barrier;
  }

  // Of all ranks that can go on, the one that is furthest behind does the next thing.
  bool next_step() {
    size_t next = ranks_.size();
    double least = INFINITY;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].act == program_.acts[r].size()) continue;
      double at = ranks_[r].now;
      if (waits(r)) {
        if (!awaited(r).over) continue;
        at = std::max(at, awaited(r).is.end);
      }
      if (at < least || (at == least && r == last_)) least = at, next = r;
    }
    if (next == ranks_.size()) return false;
    last_ = next;
    step(next);
    return true;
  }

  void step(size_t r) {
    Rank& rank = ranks_[r];
    const size_t k = op_of(r);
    const Op& op = program_.ops[k];
    if (waits(r)) {
      const Event& e = awaited(r);
      if (op.what == Op::What::Recv) take_in(r, e.is.begin);
      rank.now = std::max(rank.now, op.what == Op::What::Recv ? e.arrived : e.is.end);
      rank.in_barrier = false;
    } else if (!act(r).waits) {
      if (op.what == Op::What::Send) send(k);
      if (!op.is_message()) come(r, k);
      rank.in_barrier = op.what == Op::What::Barrier;
    }
    if (rank.in_barrier) return;
    ++rank.act;
    compute(r);
  }

  void send(size_t k) {
    const Op& op = program_.ops[k];
    Rank& from = ranks_[size_t(op.rank)];
    Event& e = events_[k];
    e.over = true;
    e.seconds = message_over(network_, op.rank, op.other, double(op.numel() * size_of(op.dtype)));
    if (e.seconds == 0) {
      e.is.begin = e.is.end = e.arrived = from.now;
      return;
    }
    e.is.begin = std::max(from.now, from.out_free);
    e.is.end = from.out_free = e.is.begin + e.seconds;
    ranks_[size_t(op.other)].coming.emplace(e.is.begin, op.rank, k);
  }

  // The rank's link takes the messages that other links have begun by then, one after the other.
  void take_in(size_t r, double until) {
    Rank& rank = ranks_[r];
    while (!rank.coming.empty() && std::get<0>(*rank.coming.begin()) <= until) {
      Event& e = events_[std::get<2>(*rank.coming.begin())];
      rank.coming.erase(rank.coming.begin());
      e.arrived = rank.in_free = std::max(e.is.end, rank.in_free + e.seconds);
    }
  }

  void come(size_t r, size_t k) {
    const Op& op = program_.ops[k];
    const Ranks& members = program_.groups[op.group];
    Event& e = events_[k];
    e.latest = std::max(e.latest, ranks_[r].now);
    if (++e.came < members.size()) return;
    const bool largest = op.what == Op::What::AllReduceMax;  // takes as long as a sum
    e.is.begin = e.latest;
    for (const int64_t m : members) take_in(size_t(m), e.latest);
    const double seconds = nodes_seconds(network_, largest ? Collective::AllReduce : Collective(int(op.what)),
                                         members, double(op.numel() * size_of(op.dtype)));
    e.is.end = e.is.begin;
    e.over = true;
    if (seconds == 0) return;
    for (const int64_t m : members)
      e.is.begin = std::max({e.is.begin, ranks_[size_t(m)].out_free, ranks_[size_t(m)].in_free});
    e.is.end = e.is.begin + seconds;
    for (const int64_t m : members) ranks_[size_t(m)].out_free = ranks_[size_t(m)].in_free = e.is.end;
  }

  const Network& network_;
  const TimedProgram& timed_;
  const Program& program_;
  std::vector<Rank> ranks_;
  std::vector<Event> events_;  // by op
  size_t last_ = 0;            // the rank that did the last thing; it goes on if no rank is behind
};

}  // namespace gradus
