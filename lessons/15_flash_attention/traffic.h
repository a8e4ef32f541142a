// Bytes that the GPU kernels of attention load from global memory and store there: predicted from the sizes
// of their tiles, and counted on emu.
#pragma once
#include "lessons/15_flash_attention/compare.h"

namespace gradus {

struct Moved {  // bytes
  int64_t loaded = 0, stored = 0;
  int64_t total() const { return loaded + stored; }
  bool operator==(const Moved&) const = default;
};
Moved flash_fwd_moves(const AttentionSize&);  // predicted, with a causal mask
Moved flash_bwd_moves(const AttentionSize&);

struct CountedMoves {
  AttentionSize size;
  Moved plain[2], flash[2], predicted[2];  // [0]: forward, [1]: backward; predicted: for flash
};
// Counts them on emu, for each T of `lengths`.
std::vector<CountedMoves> count_moves(const Lesson&, AttentionSize, const std::vector<int64_t>& lengths);
void report_moves(const std::vector<CountedMoves>&, Report&);

}  // namespace gradus
