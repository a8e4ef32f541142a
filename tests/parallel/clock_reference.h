// When a random program's ranks are where, by the longest paths through its events: a reference for the clock
// of a simulated cluster, that knows of no order in which ranks run.
#pragma once
#include "src/parallel/comm/network.h"
#include "tests/parallel/random_programs.h"

namespace gradus {

// The ring among n ranks, step by step: in each, a latency and the bytes that a rank sends in it.
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
  }
  return seconds;
}

// Within the nodes first, then between them.
inline double nodes_seconds(const Network& net, Collective what, int64_t n, double bytes) {
  const int64_t g = net.per_node;
  if (g == 0 || n <= g) return ring_seconds(net.link, what, n, bytes);
  const double between = what == Collective::Broadcast ? bytes : bytes / double(g);
  return ring_seconds(net.link, what, g, bytes) + ring_seconds(net.between, what, n / g, between);
}

inline double message_over(const Network& net, int64_t from, int64_t to, double bytes) {
  const bool same_node = net.per_node == 0 || from / net.per_node == to / net.per_node;
  const Link& link = same_node ? net.link : net.between;
  return link.latency + bytes / link.bandwidth;
}

struct TimedProgram {
  Program program;
  std::vector<std::vector<double>> computes;  // of each rank before each of its acts, and after the last
};

struct Happening {  // a collective, a message, or a time in which a rank computes
  double begin = 0, end = 0;
};

class Reference {
 public:
  Reference(const Network& network, const TimedProgram& timed)
      : program_(timed.program), called_(program_.ops.size(), -1), over_(program_.ops.size(), -1) {
    add_ops(network);
    for (size_t r = 0; r < program_.acts.size(); ++r) add_rank(r, timed.computes[r]);
    relax();
  }
  double end_of_rank(size_t rank) const { return times_[size_t(ends_[rank])]; }
  Happening of_op(size_t op) const { return {times_[size_t(called_[op])], times_[size_t(over_[op])]}; }
  // What the rank computes before its act number i.
  Happening computing(size_t rank, size_t i) const {
    const auto& [begin, end] = computing_[rank][i];
    return {times_[size_t(begin)], times_[size_t(end)]};
  }

 private:
  struct Edge {
    int64_t from, to;
    double seconds;
  };
  int64_t new_event() {
    times_.push_back(0);
    return int64_t(times_.size()) - 1;
  }
  void edge(int64_t from, int64_t to, double seconds) { edges_.push_back({from, to, seconds}); }

  // Each collective follows the one before, each message the one before on its way.
  void add_ops(const Network& network) {
    int64_t before = -1;
    std::map<std::pair<int64_t, int64_t>, int64_t> before_on;
    for (size_t k = 0; k < program_.ops.size(); ++k) {
      const Op& op = program_.ops[k];
      if (op.what == Op::What::Recv) continue;
      called_[k] = new_event();
      over_[k] = new_event();
      const double bytes = double(op.numel(program_.ranks) * size_of(op.dtype));
      const bool message = op.what == Op::What::Send;
      edge(called_[k], over_[k],
           message ? message_over(network, op.rank, op.other, bytes)
                   : nodes_seconds(network, Collective(int(op.what)), program_.ranks, bytes));
      int64_t& last = message ? before_on.try_emplace({op.rank, op.other}, -1).first->second : before;
      if (last >= 0) edge(last, called_[k], 0);
      last = over_[k];
      if (message) over_[size_t(op.pair)] = over_[k];
    }
  }

  void add_rank(size_t rank, const std::vector<double>& computes) {
    int64_t now = new_event();
    computing_.emplace_back();
    for (size_t i = 0; i < computes.size(); ++i) {
      const int64_t then = new_event();
      edge(now, then, computes[i]);
      computing_[rank].emplace_back(now, then);
      now = then;
      if (i == program_.acts[rank].size()) break;
      const Act& act = program_.acts[rank][i];
      const Op& op = program_.ops[size_t(act.op)];
      if (!act.waits && op.what != Op::What::Recv) edge(now, called_[size_t(act.op)], 0);
      const bool waits = act.waits ? op.what != Op::What::Send : op.what == Op::What::Barrier;
      if (!waits) continue;
      const int64_t after = new_event();
      edge(now, after, 0);
      edge(over_[size_t(act.op)], after, 0);
      now = after;
    }
    ends_.push_back(now);
  }

  void relax() {
    for (bool changed = true; changed;) {
      changed = false;
      for (const Edge& e : edges_) {
        const double t = times_[size_t(e.from)] + e.seconds;
        if (t <= times_[size_t(e.to)]) continue;
        times_[size_t(e.to)] = t;
        changed = true;
      }
    }
  }

  const Program& program_;
  std::vector<int64_t> called_, over_, ends_;
  std::vector<std::vector<std::pair<int64_t, int64_t>>> computing_;
  std::vector<double> times_;
  std::vector<Edge> edges_;
};

}  // namespace gradus
