#include <iostream>

#include "lessons/19_tensor_parallel/layer.h"
#include "src/core/table.h"
#include "src/parallel/comm/cluster.h"
#include "src/parallel/ring_attention.h"
#include "src/tensor/context.h"

namespace gradus {

constexpr int64_t kT = 64, kRanks = 4, kChannels = 8, kPart = kT / kRanks;

static int64_t sent_by_ring(int64_t T, int64_t C, int64_t ranks) {
  int64_t sent = 0;
  run_cluster({.ranks = ranks, .device = "meta"}, [&](Comm& comm) {
    Leaf leaf;
    Tensor qkv(current().device, {1, T / ranks, 3 * C}, DType::F32, Kind::Temporary, "qkv");
    attach(qkv, leaf, "qkv");
    Tape tape;
    const Tensor y = ring_attention(comm, qkv, 1, Mask::Causal);
    tape.backward(y, empty_like(y, "dy"));
    sent = comm.sent().elements;
  });
  return sent;
}

void ring_table(Report& report) {
  std::cout << "\n(b) Ring attention with a causal mask, " << kT << " tokens, " << kChannels
            << " channels, 4 ranks: pairs of query and key of each rank at each step\n";
  Table table({"step", "in order, rank 0", "in order, rank 1", "in order, rank 2", "in order, rank 3",
               "zigzag, rank 0", "zigzag, rank 1", "zigzag, rank 2", "zigzag, rank 3"});
  std::vector<std::vector<int64_t>> all_pairs(size_t{kRanks});
  for (int64_t step = 0; step < kRanks; ++step) {
    std::vector<std::string> cells{std::to_string(step)}, of_zigzag;
    for (int64_t r = 0; r < kRanks; ++r) {
      const int64_t whose = (r + kRanks - step) % kRanks,
                    pairs = count_pairs(chunk_pairs(Mask::Causal, r, whose, kRanks), kPart / 2);
      all_pairs[size_t(step)].push_back(pairs);
      const int64_t in_order = whose < r ? kPart * kPart : whose == r ? kPart * (kPart + 1) / 2 : 0;
      cells.push_back(std::to_string(in_order));
      of_zigzag.push_back(std::to_string(pairs));
    }
    cells.insert(cells.end(), of_zigzag.begin(), of_zigzag.end());
    table.row(cells);
  }
  std::cout << table;
  check_ring(all_pairs, sent_by_ring(kT, kChannels, kRanks), report);
}

void check_ring(const std::vector<std::vector<int64_t>>& pairs, int64_t sent, Report& report) {
  int64_t unequal = 0, met = 0;
  for (const std::vector<int64_t>& step : pairs)
    for (const int64_t of_rank : step) unequal += of_rank != step[0], met += of_rank;
  report.check_equal("(b) zigzag: ranks with more or fewer pairs than rank 0 at a step", unequal, 0);
  report.check_equal("(b) zigzag: pairs of all ranks and steps, T (T + 1) / 2", met, kT * (kT + 1) / 2);
  const int64_t n = kPart * kChannels;
  report.check_equal("(b) elements sent per rank, 2 n (N-1) + 2 n (N-1) + 2 n N for n = 128, N = 4", sent,
                     2 * n * (kRanks - 1) + 2 * n * (kRanks - 1) + 2 * n * kRanks);
}

}  // namespace gradus
