// A ring all-reduce (Patarasuk & Yuan 2009), made of messages between neighbours.
#pragma once
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "src/parallel/comm/network.h"
#include "src/train/report.h"

namespace gradus {

// x <- the sum of all ranks' x, in 2 (N-1) steps. x is cut into N parts (as part_of cuts it). In each of the
// first N-1 steps a rank sends one part to its right neighbour and adds the one that comes from the left to
// its own; after them it has one part of the sum. In the other N-1 steps the finished parts go round.
// `seen(step)` is called after each step, from 1 on.
void ring_all_reduce(Comm& comm, const Tensor& x, const std::function<void(int64_t step)>& seen);

// What each rank holds after each step: values[step][rank][part], and the part that it has just received (-1:
// none).
struct RingSteps {
  std::vector<std::vector<std::vector<double>>> values;
  std::vector<std::vector<int64_t>> received;
};
// With `ranks` parts of one number; rank r begins with 10^r in each, so that a sum shows whose numbers are in
// it.
RingSteps watch_ring(int64_t ranks);
void print_ring(std::ostream& out, const RingSteps& ring);
std::string draw_ring(const RingSteps& ring);

// A ring in which rank r begins with the number r in each element: elements that are no sum in the end, of
// all ranks; elements that all ranks sent; seconds on the network, and those of all_reduce's closed form.
struct RingCounts {
  int64_t ranks, numel, wrong, sent;
  double seconds, formula;
};
using AllReduce = std::function<void(Comm&, const Tensor&)>;
RingCounts count_ring(
    const Network& network, int64_t ranks, int64_t numel,
    const AllReduce& sum = [](Comm& comm, const Tensor& x) { ring_all_reduce(comm, x, [](int64_t) {}); });
// That it sums, that each rank sends 2 (N-1)/N of its elements, and that it takes as long as the closed form.
void check_ring(const RingCounts& ring, Report& report);

}  // namespace gradus
