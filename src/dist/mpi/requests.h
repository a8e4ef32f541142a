// Messages of MPI that are under way.
#pragma once
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace gradus {

constexpr int64_t kMostBytes = int64_t(1) << 30;  // of a message: MPI counts in int

inline void check_mpi(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(status, text, &length);
  fail("MPI: ", call, ": ", std::string(text, size_t(length)));
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
