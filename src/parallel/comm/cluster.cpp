// Whose turn it is (take_turns), where a rank waits for others (wait), and what ends all of them.
#include <algorithm>
#include <utility>

#include "src/core/timing.h"
#include "src/parallel/comm/simulation.h"

namespace gradus {

constexpr size_t kStackBytes = size_t(4) << 20;  // of addresses; memory is what is used of it

SimRank::SimRank(Cluster& cluster, const ClusterArgs& args, int64_t rank)
    : context(args.device, args.seed, args.memory_budget), comm(sim_comm(cluster, rank)), fiber(kStackBytes) {
  if (args.keep_timeline)  // asking the clock at each op takes time
    context.ranges.tell([&cluster, rank](size_t depth, const char* name) {
      if (depth == 0) cluster.next_phase(rank, name ? name : "compute");
    });
}

ClusterRun run_cluster(const ClusterArgs& args, const std::function<void(Comm&)>& body) {
  return Cluster(args, body).run();
}

Cluster::Cluster(const ClusterArgs& args, const std::function<void(Comm&)>& body) : args(args), body_(body) {
  check(args.ranks >= 1, "cluster: ", args.ranks, " ranks; there must be one at least");
  check(args.device != "cuda" && args.device != "auto",
        "cluster: ranks are simulated on cpu, emu or meta, not on ", args.device);
  check_ranks(args.network, args.ranks);
  for (int64_t r = 0; r < args.ranks; ++r) {
    std::vector<Context*> made;
    {
      const ContextsOf nobody(made);
      ranks.push_back(std::make_unique<SimRank>(*this, args, r));
    }
    ranks.back()->contexts = made;
  }
}

ClusterRun Cluster::run() {
  while (!failure_ && take_turns()) {
  }
  std::string problem = failure_ ? "" : where_all_wait();
  if (!failure_ && problem.empty()) problem = who_was_missed();
  if (!problem.empty()) failure_ = std::make_exception_ptr(Error(problem));
  if (failure_) {
    end_all();
    std::rethrow_exception(failure_);
  }
  for (int64_t r = 0; r < args.ranks; ++r) result_.seconds.push_back(clock(r));
  return std::move(result_);
}

// Every rank that can go on does so once. False: none can.
bool Cluster::take_turns() {
  bool moved = false;
  for (int64_t r = 0; r < args.ranks && !failure_; ++r) {
    const SimRank& rank = *ranks[size_t(r)];
    if (rank.done || (rank.ready && !rank.ready())) continue;
    resume(r);
    moved = true;
  }
  return moved;
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

// On the fiber of the rank that runs. It is left for good, so nothing may be alive on it then.
void Cluster::run_body() {
  const int64_t r = running_;
  if (std::exception_ptr thrown = call_body(r); thrown && !failure_) failure_ = thrown;
  ranks[size_t(r)]->done = true;
  ranks[size_t(r)]->fiber.switch_to(scheduler_);
}

// What it throws.
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

// Unwinds the ranks that are in the middle of something.
void Cluster::end_all() {
  ending_ = true;
  for (int64_t r = 0; r < args.ranks; ++r)
    while (ranks[size_t(r)]->started && !ranks[size_t(r)]->done) resume(r);
}

std::string Cluster::where_all_wait() const {
  constexpr int64_t kMostListed = 8;
  std::string text;
  int64_t waiting = 0;
  for (int64_t r = 0; r < args.ranks; ++r) {
    const SimRank& rank = *ranks[size_t(r)];
    waiting += !rank.done;
    if (r >= kMostListed) continue;
    text += "; rank " + std::to_string(r);
    text += rank.done ? " has ended" : " waits in " + rank.waits_for;
  }
  if (waiting == 0) return "";
  if (args.ranks > kMostListed) text += "; and so on";
  return "deadlock: no rank can go on" + text;
}

// All have ended, but not all had come to every collective.
std::string Cluster::who_was_missed() const {
  if (meetings_.empty()) return "";
  const Meeting& m = *meetings_.front();
  const auto who = [&](bool there) {
    const auto found =
        std::find_if(m.offers.begin(), m.offers.end(), [&](const auto& o) { return o.has_value() == there; });
    return size_t(found - m.offers.begin());
  };
  return "rank " + std::to_string(who(true)) + " began " + m.offers[who(true)]->text() +
         ", its collective number " + std::to_string(first_meeting_ + 1) + "; rank " +
         std::to_string(who(false)) + " has ended without it";
}

double Cluster::clock(int64_t r) {
  SimRank& rank = *ranks[size_t(r)];
  if (args.computed) return args.computed(r, rank.context) + rank.waited;
  return rank.ran + (r == running_ ? seconds_now() - resumed_ : 0) + rank.waited;
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

void Cluster::wait(int64_t r, const std::string& what, const std::function<bool()>& ready,
                   const std::function<double()>& until) {
  SimRank& rank = *ranks[size_t(r)];
  rank.ready = ready;
  rank.waits_for = what;
  while (!ready()) {
    rank.fiber.switch_to(scheduler_);
    if (ending_) throw Ended();
  }
  rank.ready = nullptr;
  const double now = clock(r), end = until();
  if (end <= now) return;
  add_span(rank.phase, r, false, rank.phase_began, now);
  rank.waited += end - now;
  rank.phase_began = end;
}

std::shared_ptr<Meeting> Cluster::meet(int64_t r, const Offer& offer) {
  const size_t number = ranks[size_t(r)]->meetings++;
  if (number == first_meeting_ + meetings_.size()) meetings_.push_back(std::make_shared<Meeting>(args.ranks));
  const std::shared_ptr<Meeting> meeting = meetings_[number - first_meeting_];
  for (int64_t other = 0; other < args.ranks && meeting->present > 0; ++other) {
    if (!meeting->offers[size_t(other)]) continue;
    const Offer& theirs = *meeting->offers[size_t(other)];
    check(offer.matches(theirs), "its collective number ", number + 1, " is ", offer.text(),
          ", that of rank ", other, " is ", theirs.text());
    break;  // those who are there agree
  }
  meeting->offers[size_t(r)] = offer;
  meeting->latest = std::max(meeting->latest, clock(r));
  if (++meeting->present == args.ranks) hold(*meeting);
  while (!meetings_.empty() && meetings_.front()->over) meetings_.pop_front(), ++first_meeting_;
  return meeting;
}

void Cluster::hold(Meeting& m) {
  const double aside = seconds_now();
  move_data(*this, m.offers);
  resumed_ += seconds_now() - aside;  // that was no computing of the rank's
  const Offer& any = *m.offers[0];
  const double begin = std::max(m.latest, network_free_);
  m.end = begin +
          collective_seconds(args.network, any.what, args.ranks, double(any.numel() * size_of(any.dtype())));
  network_free_ = m.end;
  for (int64_t r = 0; r < args.ranks; ++r) add_span(any.text(), r, true, begin, m.end);
  m.offers.clear();  // the tensors
  m.over = true;
}

}  // namespace gradus
