// The tiles of the GPU's attention kernels, also for programs that predict what these load.
#pragma once
#include <cstdint>

namespace gradus {

// attention_flash: 16 x 16 threads; a tile has so many rows for each row of threads. Forward needs fewer
// registers and less shared memory than backward. kDims: the dimensions that a tile has room for, 64 or 128.
constexpr int kSide = 16;
template <int kDims>
constexpr int kFwdRows = kDims <= 64 ? 4 : 2;
constexpr int kBwdRows = 2;
constexpr int64_t flash_fwd_tile(int64_t D) { return kSide * (D <= 64 ? kFwdRows<64> : kFwdRows<128>); }
constexpr int64_t kBwdTile = kSide * kBwdRows;

// attention_plain: rows that a block owns, if their weights fit into its shared memory.
constexpr int kPlainRows = 8;

}  // namespace gradus
