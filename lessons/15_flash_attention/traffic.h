// What the GPU's kernels of attention load from global memory and store there: predicted from their tiles,
// and counted on emu.
#pragma once
#include "kernels/kernels.h"
#include "src/train/lesson.h"

namespace gradus {

struct Moved {  // bytes
  int64_t loaded = 0, stored = 0;
  int64_t total() const { return loaded + stored; }
  bool operator==(const Moved&) const = default;
};
Moved plain_fwd_moves(const AttentionShape&, DType);
Moved plain_bwd_moves(const AttentionShape&, DType);
Moved flash_fwd_moves(const AttentionShape&, DType);
Moved flash_bwd_moves(const AttentionShape&, DType);

// Each kernel on emu for one head of D dimensions and each T; what was counted must be what was predicted.
void report_moves(const Lesson&, int64_t D, const std::vector<int64_t>& lengths, Report&);

}  // namespace gradus
