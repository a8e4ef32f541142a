// The implementation of a simulated cluster: scheduling of the ranks (cluster.cpp) and their communication
// (comm_sim.cpp).
#pragma once
#include <deque>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "kernels/fiber.h"
#include "src/parallel/comm/cluster.h"

namespace gradus {

class Cluster;
struct Group;

// The k-th collective of every rank of a group.
struct Meeting {
  explicit Meeting(size_t ranks) : offers(ranks) {}
  std::vector<std::optional<Offer>> offers;  // by rank in the group; empty when it is over
  size_t present = 0;
  double latest = 0, end = 0;  // clock times: the last rank's arrival, and the end
  bool over = false;
  std::map<int64_t, Group*> groups;  // made by a split, by colour
};

struct Group {
  Group(size_t number, std::vector<int64_t> ranks, std::string name)
      : number(number), members(std::move(ranks)), name(std::move(name)), come(members.size()) {}
  size_t number;                                  // index among the cluster's groups
  std::vector<int64_t> members;                   // ranks of the cluster
  std::string name;                               // empty: all ranks
  std::vector<size_t> come;                       // number of meetings so far, by rank in the group
  std::deque<std::shared_ptr<Meeting>> meetings;  // from number first_meeting on
  size_t first_meeting = 0;
};

struct Message {
  std::vector<char> bytes;
  int64_t numel;
  DType dtype;
  // Its duration; the clock times at which the sender's link begins and has finished it; and, once it is
  // known, the time at which it has arrived.
  double seconds, began = 0, sent = 0;
  std::optional<double> arrived = {};
};
using Address = std::tuple<size_t, int64_t, int64_t, int64_t>;  // group, sender, receiver, tag
struct Mailbox {
  std::map<int64_t, Message> messages;  // by number
  int64_t sent = 0, asked = 0;          // counts; the next recv() gets message number `asked`
};

// When a wait is over, or will be at the earliest; no value if that depends on other ranks.
using WhenOver = std::function<std::optional<double>()>;

// A rank's phases on the timeline are its outermost ranges.
struct Phases : RangeListener {
  Phases(Cluster& cluster, int64_t rank) : cluster(cluster), rank(rank) {}
  void began(size_t depth, const char* name) override;
  void ended(size_t depth) override { began(depth, "compute"); }
  Cluster& cluster;
  const int64_t rank;
};

struct SimRank {
  SimRank(Cluster& cluster, const ClusterArgs& args, int64_t rank);
  Phases phases;  // outlives the context, whose ranges call it
  Context context;
  std::vector<Context*> contexts;  // alive on this rank, the current one last
  std::unique_ptr<Comm> comm;
  Tensor sum;  // of a piece of all ranks' parts
  Fiber fiber;
  bool started = false, done = false;
  double ran = 0;  // measured seconds
  std::string phase = "compute";
  double phase_began = 0;
  // When it last stopped to let others run: its clock (after a wait, at the end of the wait) and computed().
  double stopped = 0, computed = 0;
  WhenOver over;  // of its wait; empty once that time is known
  std::string waits_for;
  // When its link is free again, in each direction. `coming`: messages that its link has not yet received, in
  // the order in which the senders' links begin them.
  double out_free = 0, in_free = 0;
  std::multimap<std::pair<double, int64_t>, Message*> coming;
};

class Cluster {
 public:
  Cluster(const ClusterArgs& args, const std::function<void(Comm&)>& body);
  ClusterRun run();

  const ClusterArgs& args;
  std::vector<std::unique_ptr<SimRank>> ranks;
  std::map<Address, Mailbox> mail;

  double clock(int64_t rank);
  double computed(int64_t rank);  // seconds so far
  // Ends the rank's phase on the timeline, and begins the next.
  void next_phase(int64_t rank, const std::string& name);
  Group& all() { return *groups_[0]; }
  // A rank of the group comes to its next collective. The last one to come performs the collective.
  std::shared_ptr<Meeting> meet(Group& group, int64_t rank_in_group, const Offer& offer,
                                const std::string& where);
  // Lets the ranks that are behind run until it is over; then the rank's clock is at least at that time.
  void wait(int64_t rank, const std::string& what, const WhenOver& over);
  double let_others_catch_up(int64_t rank);  // returns its clock
  void advance(int64_t rank, double to);     // sets a stopped rank's clock forward
  void post(int64_t from, int64_t to, Message& message);
  // Lets a rank's link receive the messages begun by `until`, one after the other.
  void deliver(int64_t to, double until);

 private:
  struct Ended {};  // thrown in a waiting rank when a different rank has failed
  static void enter(void* cluster);
  void run_body();
  std::exception_ptr call_body(int64_t rank);
  void stop(int64_t rank, const WhenOver& over);
  void find_when_over(int64_t rank);
  void resume(int64_t rank);
  void end_all();
  std::string where_all_wait() const;
  std::string who_was_missed(const Group& group) const;
  std::string who_was_not_asked() const;
  void hold(Group& group, Meeting& meeting);
  void split(const Group& group, Meeting& meeting);
  void add_span(const std::string& name, int64_t rank, bool communicates, double begin, double end);

  const std::function<void(Comm&)>& body_;
  Fiber scheduler_;  // the stack that run() was called on
  int64_t running_ = -1;
  double resumed_ = 0;  // when `running_` was resumed
  bool ending_ = false;
  std::exception_ptr failure_;
  std::vector<std::unique_ptr<Group>> groups_;  // the first has all ranks
  std::set<std::pair<double, int64_t>> ready_;  // (clock, rank) of the ranks that can go on
  ClusterRun result_;
};

// comm_sim.cpp
std::unique_ptr<Comm> sim_comm(Cluster& cluster, Group& group, int64_t self);
void move_data(Cluster& cluster, const Group& group, const std::vector<std::optional<Offer>>& offers);

}  // namespace gradus
