// A ring all-reduce (Patarasuk & Yuan 2009), made of messages between neighbors.
#pragma once
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "src/parallel/comm/network.h"
#include "src/train/report.h"

namespace gradus {

// x <- the sum of all ranks' x, in 2 (N-1) steps. x is cut into N parts (as part_of cuts it). In each of the
// first N-1 steps (reduce-scatter) a rank sends one part to its right neighbor, receives one from its left
// neighbor and adds it to its own. Then each rank has one complete part. In the other N-1 steps (all-gather)
// the complete parts are passed on. `seen(step)` is called after each step; the first step is 1.
void ring_all_reduce(Comm& comm, const Tensor& x, const std::function<void(int64_t step)>& seen);

// After each step: values[step][rank][part], and the part that has just changed, because the rank received it
// (-1: none).
struct RingSteps {
  std::vector<std::vector<std::vector<double>>> values;
  std::vector<std::vector<int64_t>> received;
};
// With `ranks` parts of one number. Rank r starts with 10^r in each part, so each digit of a sum shows one
// rank.
RingSteps watch_ring(int64_t ranks);
void print_ring(std::ostream& out, const RingSteps& ring);
std::string draw_ring(const RingSteps& ring);

// A ring in which rank r starts with the number r in each element.
struct RingCounts {
  int64_t ranks, numel;
  int64_t wrong;   // elements of all ranks that differ from the sum
  int64_t sent;    // elements that all ranks sent
  double seconds;  // on the simulated network
  double formula;  // seconds by the closed form of all_reduce
};
using AllReduce = std::function<void(Comm&, const Tensor&)>;
RingCounts count_ring(
    const Network& network, int64_t ranks, int64_t numel,
    const AllReduce& sum = [](Comm& comm, const Tensor& x) { ring_all_reduce(comm, x, [](int64_t) {}); });
// Checks the sum, that each rank sends 2 (N-1)/N of its elements, and that the ring takes as long as the
// closed form says.
void check_ring(const RingCounts& ring, Report& report);

}  // namespace gradus
