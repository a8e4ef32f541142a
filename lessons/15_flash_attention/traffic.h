// What the GPU's kernels of attention load from global memory and store there: predicted from their tiles,
// and counted on emu.
#pragma once
#include "lessons/15_flash_attention/compare.h"

namespace gradus {

struct Moved {  // bytes
  int64_t loaded = 0, stored = 0;
  int64_t total() const { return loaded + stored; }
  bool operator==(const Moved&) const = default;
};
Moved flash_fwd_moves(const AttentionSize&);  // causal
Moved flash_bwd_moves(const AttentionSize&);

struct CountedMoves {
  AttentionSize size;
  Moved plain[2], flash[2], predicted[2];  // of forward and backward; predicted: of flash
};
// Counted on emu for each T.
std::vector<CountedMoves> count_moves(const Lesson&, AttentionSize, const std::vector<int64_t>& lengths);
void report_moves(const std::vector<CountedMoves>&, Report&);

}  // namespace gradus
