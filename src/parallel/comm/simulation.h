// The inside of a simulated cluster: whose turn it is (cluster.cpp), and what its collectives do
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
  std::vector<std::optional<Offer>> offers;  // by rank in the group; until it is over
  size_t present = 0;
  double latest = 0, end = 0;  // on the clock: when the last one came, and when it ends
  bool over = false;
  std::map<int64_t, Group*> groups;  // that a split has made, by colour
};

struct Group {
  Group(size_t number, std::vector<int64_t> ranks, std::string name)
      : number(number), members(std::move(ranks)), name(std::move(name)), come(members.size()) {}
  size_t number;                                  // of the cluster's groups
  std::vector<int64_t> members;                   // ranks of the cluster
  std::string name;                               // empty: all ranks
  std::vector<size_t> come;                       // by rank in the group: to how many meetings
  std::deque<std::shared_ptr<Meeting>> meetings;  // from number first_meeting on
  size_t first_meeting = 0;
};

struct Message {
  std::vector<char> bytes;
  int64_t numel;
  DType dtype;
  // On the clock: how long it takes, when the sender's link begins and when it has done with it, and, once
  // that is known, when it has arrived.
  double seconds, began = 0, sent = 0;
  std::optional<double> arrived = {};
};
using Address = std::tuple<size_t, int64_t, int64_t, int64_t>;  // group, from and to in the cluster, tag
struct Mailbox {
  std::map<int64_t, Message> messages;  // by number
  int64_t sent = 0, asked = 0;          // so many; the next recv() gets message number `asked`
};

// When something is over, or will be at the earliest; nothing, if that depends on others.
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
  Phases phases;  // outlives the context, whose ranges tell it
  Context context;
  std::vector<Context*> contexts;  // that are alive on it, the current one last
  std::unique_ptr<Comm> comm;
  Tensor sum;  // of pieces of all ranks' parts
  Fiber fiber;
  bool started = false, done = false;
  double ran = 0;  // seconds, as measured
  std::string phase = "compute";
  double phase_began = 0;
  // When it stopped last to let others run: its clock, or until when it waited then; what it had computed.
  double stopped = 0, computed = 0;
  WhenOver over;  // what it waits for, until it is known when that is over
  std::string waits_for;
  // When its link is free again, each way. Messages that its link has still to take, in the order in which
  // the senders' links begin with them.
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
  double computed(int64_t rank);  // so far, in seconds
  // Ends the rank's phase on the timeline, and begins the next.
  void next_phase(int64_t rank, const std::string& name);
  Group& all() { return *groups_[0]; }
  // A rank of the group has come to its next collective. The last one to come does it all.
  std::shared_ptr<Meeting> meet(Group& group, int64_t rank_in_group, const Offer& offer,
                                const std::string& where);
  // The turn of the ranks that are behind, until it is over; the clock is then at least at that time.
  void wait(int64_t rank, const std::string& what, const WhenOver& over);
  double let_others_catch_up(int64_t rank);  // returns its time
  void advance(int64_t rank, double to);     // the clock of one that has stopped
  void post(int64_t from, int64_t to, Message& message);
  // Lets a rank's link take what has begun by then, one message after the other.
  void deliver(int64_t to, double until);

 private:
  struct Ended {};  // thrown where a rank waits when another one has failed
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
  double resumed_ = 0;  // when that was
  bool ending_ = false;
  std::exception_ptr failure_;
  std::vector<std::unique_ptr<Group>> groups_;  // the first one is all ranks
  std::set<std::pair<double, int64_t>> ready_;  // who can go on, and from which time on its clock
  ClusterRun result_;
};

// comm_sim.cpp
std::unique_ptr<Comm> sim_comm(Cluster& cluster, Group& group, int64_t self);
void move_data(Cluster& cluster, const Group& group, const std::vector<std::optional<Offer>>& offers);

}  // namespace gradus
