// Tile sizes of the GPU's attention kernels, also for programs that predict the memory traffic of these.
#pragma once
#include <cstdint>

namespace gradus {

// attention_flash: 16 x 16 threads; a tile has kFwdRows or kBwdRows rows per row of threads. Forward needs
// fewer registers and less shared memory than backward. kDims: 64 or 128, a tile's room for dimensions.
constexpr int kSide = 16;
template <int kDims>
constexpr int kFwdRows = kDims <= 64 ? 4 : 2;
constexpr int kBwdRows = 2;
constexpr int64_t flash_fwd_tile(int64_t D) { return kSide * (D <= 64 ? kFwdRows<64> : kFwdRows<128>); }
constexpr int64_t kBwdTile = kSide * kBwdRows;

// attention_plain: rows that a block owns, if their weights fit into its shared memory.
constexpr int kPlainRows = 8;

}  // namespace gradus
