// MPI messages in flight, and the headers that ranks compare before a collective.
#pragma once
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <climits>
#include <string>
#include <vector>

#include "src/core/table.h"
#include "src/core/timing.h"
#include "src/parallel/comm/comm.h"

namespace gradus {

constexpr int64_t kMostBytes = int64_t(1) << 30;  // per message: MPI counts in int

inline void check_mpi(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(status, text, &length);
  fail("MPI: ", call, ": ", std::string(text, size_t(length)));
}

struct Header {  // what ranks compare, to know that all call the same
  int64_t what, numel, dtype, root;
  static Header of(const Offer& o) {
    const int64_t name = int64_t(std::hash<std::string>()(o.name));
    return {int64_t(o.what), o.what == Collective::Split ? name : o.numel(), int64_t(o.dtype()), o.root};
  }
  bool matches(const Header& h) const {  // colours may differ
    return what == h.what && numel == h.numel && dtype == h.dtype &&
           (root == h.root || Collective(what) == Collective::Split);
  }
  std::string text() const { return Offer::text_of(Collective(what), numel, DType(dtype), root); }
  CBuf in() const { return {this, DType::I64}; }
  Out set() { return {this, DType::I64}; }
  static constexpr int64_t kNumel = 4;
};

extern double comm_timeout;  // seconds
inline std::string no_answer() {
  return "no answer for " + number_text(comm_timeout) +
         " s (--comm-timeout); is a rank hanging, or doing something else?";
}

// Returns when over() is true. It yields the core repeatedly, because other processes may need it.
template <class F>
void wait_until(const F& over, const std::string& what) {
  for (const double begin = seconds_now(); !over(); sched_yield())
    check(seconds_now() - begin < comm_timeout, what, ": ", no_answer());
}

// A timeout, while this lives, for an MPI call that waits for other processes. When it goes off, it prints a
// message and ends this process, without MPI, which is within a call; then the launcher ends all processes.
struct Alarm {
  explicit Alarm(const char* call);
  ~Alarm();
};

// Compares the headers, by rank, of the collective that each rank has begun with `comm`.
inline void check_same(const Comm& comm, const std::string& mine, const std::vector<Header>& all,
                       int64_t number) {
  const Header& own = all[size_t(comm.rank())];
  for (size_t r = 0; r < all.size(); ++r)
    check(
        own.matches(all[r]), "its collective number ", number, comm.where(), " is ", mine, ", that of rank ",
        comm.members()[r], " is ", all[r].text(),
        own.what == all[r].what && Collective(own.what) == Collective::Split ? " into different groups" : "");
}
// The ranks that have given this colour in a split.
inline std::vector<int64_t> members_with(int64_t color, const Comm& comm, const std::vector<Header>& theirs) {
  std::vector<int64_t> members;
  for (size_t r = 0; r < theirs.size(); ++r)
    if (theirs[r].root == color) members.push_back(comm.members()[r]);
  return members;
}
// MPI's communicator of these ranks.
inline MPI_Comm split_mpi(MPI_Comm comm, int64_t color, int64_t rank) {
  check(color <= INT_MAX, "split: colour ", color, "; MPI takes colours up to ", INT_MAX);
  const Alarm alarm("MPI_Comm_split");
  MPI_Comm part;
  check_mpi(MPI_Comm_split(comm, int(color), int(rank), &part), "MPI_Comm_split");
  return part;
}

class Requests {
 public:
  explicit Requests(MPI_Comm comm) : comm_(comm) {}
  void send(CBuf x, int64_t n, int64_t to, int tag) {
    pieces(n * size_of(x.t), [&](int64_t at, int bytes) {
      check_mpi(MPI_Isend(x.as<char>() + at, bytes, MPI_BYTE, int(to), tag, comm_, &add()), "MPI_Isend");
    });
  }
  void recv(Out y, int64_t n, int64_t from, int tag) {
    pieces(n * size_of(y.t), [&](int64_t at, int bytes) {
      check_mpi(MPI_Irecv(y.as<char>() + at, bytes, MPI_BYTE, int(from), tag, comm_, &add()), "MPI_Irecv");
    });
  }
  void barrier() { check_mpi(MPI_Ibarrier(comm_, &add()), "MPI_Ibarrier"); }
  bool over() {
    int all = 0;
    check_mpi(MPI_Testall(int(requests_.size()), requests_.data(), &all, MPI_STATUSES_IGNORE), "MPI_Testall");
    if (all) requests_.clear();
    return all;
  }

 private:
  MPI_Request& add() { return requests_.emplace_back(); }
  template <class F>
  static void pieces(int64_t bytes, const F& each) {
    for (int64_t at = 0; at < bytes; at += kMostBytes) each(at, int(std::min(kMostBytes, bytes - at)));
  }
  MPI_Comm comm_;
  std::vector<MPI_Request> requests_;
};

}  // namespace gradus
