// The clock of a simulated cluster: random programs on many networks, compared with a reference that goes
// through their events in the order of time.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "src/parallel/comm/cluster.h"
#include "src/tensor/profile_range.h"
#include "tests/parallel/clock_reference.h"

namespace gradus {
namespace {

bool near(double a, double b) { return std::abs(a - b) <= 1e-12 * std::max(std::abs(a), std::abs(b)); }
void expect_same(double a, double b, const std::string& what) {
  EXPECT_TRUE(near(a, b)) << what << ": " << a << ", not " << b;
}

std::vector<Network> networks() {
  std::vector<Network> all = published_networks();
  all.push_back({});
  all.push_back({.name = "slow", .source = "", .link = {0.25, 100}});
  all.push_back({.name = "pairs", .source = "", .link = {1e-3, 1e6}, .per_node = 2, .between = {0.1, 1e4}});
  all.push_back({.name = "threes", .source = "", .link = {0, 1e5}, .per_node = 3, .between = {0.5, 1e30}});
  all.push_back({.name = "ones", .source = "", .link = {7, 1}, .per_node = 1, .between = {0.1, 1e4}});
  return all;
}

TimedProgram timed_program(Rng& rng, int64_t ranks, bool messages, bool groups) {
  TimedProgram timed;
  const int64_t splits = groups ? 2 + int64_t(rng.below(3)) : 0;
  timed.program =
      ProgramMaker(rng, ranks, {0, 1, 7, 64, 1000}, messages, splits).make(1 + int64_t(rng.below(14)));
  for (const auto& acts : timed.program.acts) {
    timed.computes.emplace_back();
    for (size_t i = 0; i <= acts.size(); ++i)  // often nothing, rarely much
      timed.computes.back().push_back(rng.below(3) == 0 ? 0 : std::exp(4 * rng.normal() - 4));
    if (groups)
      timed.computes.back()[0] += 1e-6 * rng.uniform();  // splits end at 0, whichever rank is the last then
  }
  return timed;
}

constexpr const char* kPhases[] = {"forward", "backward", "update"};

void play(Comm& comm, const TimedProgram& timed, double& clock) {
  const Program& p = timed.program;
  const size_t rank = size_t(comm.rank());
  Comms comms(comm, p);
  std::map<int64_t, std::unique_ptr<Work>> works;
  std::vector<Tensor> kept;
  std::optional<ProfileRange> range;
  for (size_t i = 0; i <= p.acts[rank].size(); ++i) {
    range.emplace(kPhases[i % 3]);
    clock += timed.computes[rank][i];
    if (i == p.acts[rank].size()) break;
    const Act& act = p.acts[rank][i];
    if (act.waits) {
      works[act.op]->wait();
      continue;
    }
    const Op& op = p.ops[size_t(act.op)];
    const auto tensor = [&](int64_t n) {
      kept.emplace_back(current().device, Shape{n}, op.dtype, Kind::Other, "x");
      return kept.back();
    };
    const Tensor x = tensor(op.x_numel()), y = tensor(op.y_numel());
    works[act.op] = begin(comms, op, x, y);
  }
}

ClusterRun run(const TimedProgram& timed, const Network& net, bool keep_timeline) {
  std::vector<double> clocks(timed.computes.size());
  return run_cluster({.ranks = timed.program.ranks,
                      .device = "meta",
                      .network = net,
                      .computed = [&](int64_t r, Context&) { return clocks[size_t(r)]; },
                      .keep_timeline = keep_timeline},
                     [&](Comm& comm) { play(comm, timed, clocks[size_t(comm.rank())]); });
}

int64_t random_ranks(Rng& rng, const Network& net) {
  const int64_t ranks = 1 + int64_t(rng.below(6));
  return net.per_node > 0 && ranks > net.per_node ? ranks / net.per_node * net.per_node : ranks;
}

// Checks that the rank's phases are its computation, each at its time, with the waits between them.
void expect_phases(const std::vector<Span>& phases, size_t rank, const TimedProgram& timed,
                   const Reference& reference) {
  double computed = 0, in_phases = 0, last = 0;
  for (const Span& s : phases) {
    EXPECT_TRUE(s.begin >= last || near(s.begin, last)) << s.name << " begins within the previous one";
    EXPECT_LE(s.begin, s.end);
    last = s.end;
    in_phases += s.end - s.begin;
  }
  for (size_t i = 0; i < timed.computes[rank].size(); ++i) {
    const double seconds = timed.computes[rank][i];
    computed += seconds;
    const Happening is = reference.computing(rank, i);
    const bool found = std::any_of(phases.begin(), phases.end(), [&](const Span& s) {
      return s.name == kPhases[i % 3] && (s.begin <= is.begin || near(s.begin, is.begin)) &&
             (s.end >= is.end || near(s.end, is.end));
    });
    EXPECT_TRUE(found || seconds == 0) << "no " << kPhases[i % 3] << " from " << is.begin << " to " << is.end;
  }
  EXPECT_NEAR(in_phases, computed, 1e-11 * (computed + last));
}

void expect_timeline(const ClusterRun& ran, const TimedProgram& timed, const Reference& reference) {
  const Program& p = timed.program;
  std::vector<std::vector<Span>> phases(timed.computes.size()), collectives = phases;
  for (const Span& s : ran.timeline) {
    ASSERT_TRUE(s.rank >= 0 && s.rank < p.ranks);
    (s.communicates ? collectives : phases)[size_t(s.rank)].push_back(s);
  }
  for (size_t r = 0; r < phases.size(); ++r) {
    SCOPED_TRACE("rank " + std::to_string(r));
    expect_phases(phases[r], r, timed, reference);
    size_t expected = 0;
    for (size_t k = 0; k < p.ops.size(); ++k) {
      const Op& op = p.ops[k];
      const Ranks& members = p.groups[op.group];
      if (op.is_message() || place_in(members, int64_t(r)) == op.ranks) continue;
      const Happening is = reference.of_op(k);
      if (is.begin == is.end) continue;  // spans of no duration are left out
      ++expected;
      const std::string name = op.group == 0 ? offer_name(op.what) : std::string(": ") + offer_name(op.what);
      EXPECT_TRUE(std::any_of(collectives[r].begin(), collectives[r].end(),
                              [&](const Span& s) {
                                return near(s.begin, is.begin) && near(s.end, is.end) &&
                                       s.name.find(name) != std::string::npos &&
                                       (op.group == 0) == !s.name.starts_with("split ");
                              }))
          << "no " << name << " from " << is.begin << " to " << is.end;
    }
    EXPECT_EQ(expected, collectives[r].size());
  }
}

// And timelines, if they are kept, show the computation and the communication.
TEST(L17_Clock, RandomProgramsTakeTheTimeOfTheReference) {
  const std::vector<Network> all = networks();
  for (uint64_t i = 0; i < 2000 && !HasFailure(); ++i) {
    SCOPED_TRACE("program " + std::to_string(i));
    Rng rng(19, i);
    const Network& net = all[i % all.size()];
    const TimedProgram timed = timed_program(rng, random_ranks(rng, net), i % 4 != 0, i % 2 != 0);
    const bool keep_timeline = i % 3 == 0;
    const ClusterRun ran = run(timed, net, keep_timeline);
    const Reference reference(net, timed);
    ASSERT_EQ(ran.seconds.size(), timed.computes.size());
    for (size_t r = 0; r < ran.seconds.size(); ++r)
      expect_same(ran.seconds[r], reference.end_of_rank(r), "rank " + std::to_string(r));
    if (keep_timeline)
      expect_timeline(ran, timed, reference);
    else
      EXPECT_TRUE(ran.timeline.empty());
  }
}

}  // namespace
}  // namespace gradus
