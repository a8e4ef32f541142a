// Scheduling of the ranks (run), waiting for other ranks (wait), and the end of all ranks after an error.
#include <algorithm>
#include <utility>

#include "src/core/timing.h"
#include "src/parallel/comm/simulation.h"

namespace gradus {

constexpr size_t kStackBytes = size_t(4) << 20;  // of address space; only pages that are touched take memory

SimRank::SimRank(Cluster& cluster, const ClusterArgs& args, int64_t rank)
    : phases(cluster, rank),
      context(args.device, args.seed, args.memory_budget),
      comm(sim_comm(cluster, cluster.all(), rank)),
      sum(context.device, {kPiece}, DType::F32, Kind::Comm, "sum of parts"),
      fiber(kStackBytes) {
  if (args.made) args.made(rank, context);
  if (args.keep_timeline) context.ranges.add(phases);  // asking the clock at each op takes time
}

void Phases::began(size_t depth, const char* name) {
  if (depth == 0) cluster.next_phase(rank, name);
}

ClusterRun run_cluster(const ClusterArgs& args, const std::function<void(Comm&)>& body) {
  return Cluster(args, body).run();
}

Cluster::Cluster(const ClusterArgs& args, const std::function<void(Comm&)>& body) : args(args), body_(body) {
  check(args.ranks >= 1, "cluster: ", args.ranks, " ranks; there must be at least one");
  check(args.device != "cuda" && args.device != "auto",
        "cluster: ranks are simulated on cpu, emu or meta, not on ", args.device);
  check_ranks(args.network, args.ranks);
  groups_.push_back(std::make_unique<Group>(0, first_ranks(args.ranks), ""));
  for (int64_t r = 0; r < args.ranks; ++r) {
    std::vector<Context*> made;
    {
      const ContextsOf of_rank(made);
      ranks.push_back(std::make_unique<SimRank>(*this, args, r));
    }
    ranks.back()->contexts = made;
  }
}

// Of the ranks that can go on, the one whose clock is furthest behind runs: so it knows of everything that
// was sent earlier, and messages occupy the links in the order of time.
ClusterRun Cluster::run() {
  for (int64_t r = 0; r < args.ranks; ++r) ready_.emplace(0, r);
  while (!failure_ && !ready_.empty()) {
    const int64_t r = ready_.begin()->second;
    ready_.erase(ready_.begin());
    resume(r);
  }
  std::string problem = failure_ ? "" : where_all_wait();
  for (const auto& group : groups_)
    if (!failure_ && problem.empty()) problem = who_was_missed(*group);
  if (!failure_ && problem.empty()) problem = who_was_not_asked();
  if (!problem.empty()) failure_ = std::make_exception_ptr(Error(problem));
  if (failure_) {
    end_all();
    std::rethrow_exception(failure_);
  }
  for (int64_t r = 0; r < args.ranks; ++r) result_.seconds.push_back(clock(r));
  return std::move(result_);
}

void Cluster::stop(int64_t r, const WhenOver& over) {
  SimRank& rank = *ranks[size_t(r)];
  if (ending_) throw Ended();
  rank.stopped = clock(r);
  rank.computed = computed(r);
  const std::optional<double> known = over();
  if (known && (ready_.empty() || ready_.begin()->first >= std::max(rank.stopped, *known)))
    return;  // no rank is behind
  rank.over = over;
  find_when_over(r);
  rank.fiber.switch_to(scheduler_);
  rank.over = nullptr;
  if (ending_) throw Ended();
}

// Called before a rank does something that others can see: what they do at earlier times comes first.
double Cluster::let_others_catch_up(int64_t r) {
  const SimRank& rank = *ranks[size_t(r)];
  stop(r, [&rank] { return rank.stopped; });
  return rank.stopped;
}

void Cluster::find_when_over(int64_t r) {
  SimRank& rank = *ranks[size_t(r)];
  const std::optional<double> over = rank.over ? rank.over() : std::nullopt;
  if (!over) return;
  rank.over = nullptr;
  ready_.emplace(std::max(rank.stopped, *over), r);
}

void Cluster::resume(int64_t r) {
  SimRank& rank = *ranks[size_t(r)];
  if (!std::exchange(rank.started, true)) rank.fiber.start(enter, this);
  const ContextsOf its_own(rank.contexts);
  running_ = r;
  resumed_ = seconds_now();
  scheduler_.switch_to(rank.fiber);
  rank.ran += seconds_now() - resumed_;
  running_ = -1;
}

void Cluster::enter(void* cluster) { static_cast<Cluster*>(cluster)->run_body(); }

// Runs on the running rank's fiber. Its last switch never returns, so no object may be alive there then.
void Cluster::run_body() {
  const int64_t r = running_;
  if (std::exception_ptr thrown = call_body(r); thrown && !failure_) failure_ = thrown;
  ranks[size_t(r)]->done = true;
  ranks[size_t(r)]->fiber.switch_to(scheduler_);
}

// Returns the exception of the rank's body, if there is one.
std::exception_ptr Cluster::call_body(int64_t r) {
  const std::string prefix = "rank " + std::to_string(r) + ": ";
  try {
    body_(*ranks[size_t(r)]->comm);
    next_phase(r, "");
    return {};
  } catch (const Ended&) {
    return {};
  } catch (const OutOfMemory& e) {
    return std::make_exception_ptr(OutOfMemory(prefix + e.what()));
  } catch (const Error& e) {
    return std::make_exception_ptr(Error(prefix + e.what()));
  } catch (...) {
    return std::current_exception();
  }
}

// Unwinds the ranks that have begun and not ended.
void Cluster::end_all() {
  ending_ = true;
  for (int64_t r = 0; r < args.ranks; ++r)
    while (ranks[size_t(r)]->started && !ranks[size_t(r)]->done) resume(r);
}

double Cluster::computed(int64_t r) {
  SimRank& rank = *ranks[size_t(r)];
  if (args.computed) return args.computed(r, rank.context);
  return rank.ran + (r == running_ ? seconds_now() - resumed_ : 0);
}

double Cluster::clock(int64_t r) {
  const SimRank& rank = *ranks[size_t(r)];
  return rank.stopped + (computed(r) - rank.computed);
}

void Cluster::add_span(const std::string& name, int64_t rank, bool communicates, double begin, double end) {
  if (args.keep_timeline && end > begin) result_.timeline.push_back({name, rank, communicates, begin, end});
}

void Cluster::next_phase(int64_t r, const std::string& name) {
  SimRank& rank = *ranks[size_t(r)];
  const double now = clock(r);
  add_span(rank.phase, r, false, rank.phase_began, now);
  rank.phase = name;
  rank.phase_began = now;
}

void Cluster::wait(int64_t r, const std::string& what, const WhenOver& over) {
  ranks[size_t(r)]->waits_for = what;
  stop(r, over);
  advance(r, *over());
}

void Cluster::advance(int64_t r, double to) {
  SimRank& rank = *ranks[size_t(r)];
  if (to <= rank.stopped) return;
  add_span(rank.phase, r, false, rank.phase_began, rank.stopped);
  rank.phase_began = rank.stopped = to;
}

void Cluster::post(int64_t from, int64_t to, Message& m) {
  SimRank& sender = *ranks[size_t(from)];
  m.began = std::max(sender.stopped, sender.out_free);
  m.sent = m.began + m.seconds;
  if (m.seconds == 0) {  // needs no link
    m.arrived = m.began = m.sent = sender.stopped;
  } else {
    sender.out_free = m.sent;
    ranks[size_t(to)]->coming.emplace(std::pair(m.began, from), &m);
  }
  find_when_over(to);
}

void Cluster::deliver(int64_t to, double until) {
  SimRank& rank = *ranks[size_t(to)];
  for (auto first = rank.coming.begin(); first != rank.coming.end() && first->first.first <= until;
       first = rank.coming.erase(first)) {
    Message& m = *first->second;
    rank.in_free = std::max(m.sent, rank.in_free + m.seconds);
    m.arrived = rank.in_free;
  }
}

std::shared_ptr<Meeting> Cluster::meet(Group& group, int64_t r, const Offer& offer,
                                       const std::string& where) {
  const int64_t of_all = group.members[size_t(r)];
  const double now = let_others_catch_up(of_all);
  const size_t number = group.come[size_t(r)]++;
  if (number == group.first_meeting + group.meetings.size())
    group.meetings.push_back(std::make_shared<Meeting>(group.members.size()));
  const std::shared_ptr<Meeting> meeting = group.meetings[number - group.first_meeting];
  for (size_t other = 0; other < group.members.size() && meeting->present > 0; ++other) {
    if (!meeting->offers[other]) continue;
    const Offer& first = *meeting->offers[other];
    check(offer.matches(first), "its collective number ", number + 1, where, " is ", offer.text(),
          ", that of rank ", group.members[other], " is ", first.text());
    break;  // the ranks that have come agree
  }
  meeting->offers[size_t(r)] = offer;
  meeting->latest = std::max(meeting->latest, now);
  if (++meeting->present == group.members.size()) hold(group, *meeting);
  while (!group.meetings.empty() && group.meetings.front()->over)
    group.meetings.pop_front(), ++group.first_meeting;
  return meeting;
}

// A collective occupies its ranks' links in both directions while it lasts; if it takes no time, not at all.
void Cluster::hold(Group& group, Meeting& m) {
  const double aside = seconds_now();
  move_data(*this, group, m.offers);
  const Offer& any = *m.offers[0];
  if (any.what == Collective::Split) split(group, m);
  resumed_ += seconds_now() - aside;  // moving the data is not the rank's computation
  const double bytes = double(any.numel() * size_of(any.dtype())),
               seconds = collective_seconds(args.network, any.what, group.members, bytes);
  double begin = m.latest;
  for (const int64_t r : group.members) {
    SimRank& rank = *ranks[size_t(r)];
    deliver(r, m.latest);
    if (seconds > 0) begin = std::max({begin, rank.out_free, rank.in_free});
  }
  m.end = begin + seconds;
  for (const int64_t r : group.members) {
    if (seconds > 0) ranks[size_t(r)]->out_free = ranks[size_t(r)]->in_free = m.end;
    add_span((group.name.empty() ? "" : group.name + ": ") + any.text(), r, true, begin, m.end);
  }
  m.offers.clear();  // the tensors
  m.over = true;
  for (const int64_t r : group.members) find_when_over(r);
}

// Makes the groups, in the order of their colours.
void Cluster::split(const Group& group, Meeting& m) {
  std::map<int64_t, std::vector<int64_t>> members;
  for (size_t r = 0; r < m.offers.size(); ++r) members[m.offers[r]->root].push_back(group.members[r]);
  for (auto& [color, ranks_of_it] : members) {
    groups_.push_back(std::make_unique<Group>(groups_.size(), ranks_of_it, m.offers[0]->name));
    m.groups[color] = groups_.back().get();
  }
}

}  // namespace gradus
