// The inside of a simulated cluster: whose turn it is (cluster.cpp), and what its collectives do
// (comm_sim.cpp).
#pragma once
#include <deque>
#include <exception>
#include <map>
#include <optional>

#include "kernels/fiber.h"
#include "src/parallel/comm/cluster.h"

namespace gradus {

// The k-th collective of every rank.
struct Meeting {
  explicit Meeting(int64_t ranks) : offers(size_t(ranks)) {}
  std::vector<std::optional<Offer>> offers;  // by rank; until it is over
  int64_t present = 0;
  double latest = 0, end = 0;  // on the clock: when the last one came, and when it ends
  bool over = false;
};

struct Message {
  std::vector<char> bytes;
  int64_t numel;
  DType dtype;
  double arrives;  // on the clock
};
struct Mailbox {                        // from one rank to another
  std::map<int64_t, Message> messages;  // by number
  int64_t sent = 0, asked = 0;          // so many; the next recv() gets message number `asked`
  double free = 0;                      // when the way is, on the clock
};

class Cluster;

struct SimRank {
  SimRank(Cluster& cluster, const ClusterArgs& args, int64_t rank);
  Context context;
  std::vector<Context*> contexts;  // that are alive on it, the current one last
  std::unique_ptr<Comm> comm;
  Fiber fiber;
  bool started = false, done = false;
  size_t meetings = 0;  // that it has come to
  double ran = 0;       // seconds, as measured
  double waited = 0;    // seconds on its clock
  std::string phase = "compute";
  double phase_began = 0;
  std::function<bool()> ready;  // until then it waits
  std::string waits_for;
};

class Cluster {
 public:
  Cluster(const ClusterArgs& args, const std::function<void(Comm&)>& body);
  ClusterRun run();

  const ClusterArgs& args;
  std::vector<std::unique_ptr<SimRank>> ranks;
  std::map<std::pair<int64_t, int64_t>, Mailbox> mail;  // by (from, to)

  double clock(int64_t rank);
  // Ends the rank's phase on the timeline, and begins the next.
  void next_phase(int64_t rank, const std::string& name);
  // The rank has come to its next collective. The last one to come does it all.
  std::shared_ptr<Meeting> meet(int64_t rank, const Offer& offer);
  // The other ranks' turn until `ready`; the clock is then at least at `until()`.
  void wait(int64_t rank, const std::string& what, const std::function<bool()>& ready,
            const std::function<double()>& until);

 private:
  struct Ended {};  // thrown where a rank waits when another one has failed
  static void enter(void* cluster);
  void run_body();
  std::exception_ptr call_body(int64_t rank);
  bool take_turns();
  void resume(int64_t rank);
  void end_all();
  std::string where_all_wait() const;
  std::string who_was_missed() const;
  void hold(Meeting& meeting);
  void add_span(const std::string& name, int64_t rank, bool communicates, double begin, double end);

  const std::function<void(Comm&)>& body_;
  Fiber scheduler_;  // the stack that run() was called on
  int64_t running_ = -1;
  double resumed_ = 0;  // when that was
  bool ending_ = false;
  std::exception_ptr failure_;
  double network_free_ = 0;                        // when the collective before is over
  std::deque<std::shared_ptr<Meeting>> meetings_;  // from number first_meeting_ on
  size_t first_meeting_ = 0;
  ClusterRun result_;
};

// comm_sim.cpp
std::unique_ptr<Comm> sim_comm(Cluster& cluster, int64_t rank);
void move_data(Cluster& cluster, const std::vector<std::optional<Offer>>& offers);

}  // namespace gradus
