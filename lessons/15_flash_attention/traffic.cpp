#include "lessons/15_flash_attention/traffic.h"

#include <algorithm>
#include <iostream>

#include "kernels/cuda/attention_sizes.h"
#include "kernels/emu/traffic.h"
#include "lessons/15_flash_attention/compare.h"
#include "src/autograd/tape.h"
#include "src/core/table.h"

namespace gradus {

// The sum of f(first, end) over the tiles of T rows.
template <class F>
static int64_t sum_tiles(int64_t T, int64_t tile, F f) {
  int64_t sum = 0;
  for (int64_t first = 0; first < T; first += tile) sum += f(first, std::min(first + tile, T));
  return sum;
}
// Number of keys in the tiles that a tile of queries ending at `end` needs. The last tile ends with the last
// key.
static int64_t keys_of_tiles(int64_t T, int64_t end, int64_t tile) {
  return std::min((end + tile - 1) / tile * tile, T);
}

Moved flash_fwd_moves(const AttentionSize& s) {
  const int64_t tile = flash_fwd_tile(s.D), H = s.B * s.heads.q;
  const int64_t vectors = sum_tiles(s.T, tile, [&](int64_t first, int64_t end) {
    return end - first + 2 * keys_of_tiles(s.T, end, tile);  // q; k and v
  });
  return {H * vectors * s.D * size_of(s.dtype),
          H * s.T * (s.D * size_of(s.dtype) + size_of(DType::F32))};  // y and log-sum-exps
}

Moved flash_bwd_moves(const AttentionSize& s) {
  constexpr int64_t kReaders = kSide;  // threads of a tile's row; each loads the row's log-sum-exp and rowsum
  const int64_t H = s.B * s.heads.q, KV = s.B * s.heads.kv, float_bytes = size_of(DType::F32);
  const int64_t dq = sum_tiles(s.T, kBwdTile, [&](int64_t first, int64_t end) {
    return 2 * (end - first) + 3 * keys_of_tiles(s.T, end, kBwdTile);  // q, dy; k (scores), v (dP), k (dq)
  });
  const int64_t queries = sum_tiles(s.T, kBwdTile, [&](int64_t first, int64_t) { return s.T - first; });
  // dy and y for the rowsums; the kernel of dq; k and v of each tile, and for each query head of the tile: q
  // for scores, dy for dP and dv, q for dk
  const int64_t vectors = H * 2 * s.T + H * dq + KV * 2 * s.T + H * 3 * queries;
  return {vectors * s.D * size_of(s.dtype) + H * kReaders * 2 * (s.T + queries) * float_bytes,
          (H + 2 * KV) * s.T * s.D * size_of(s.dtype) + H * s.T * float_bytes};  // dq, dk, dv; rowsums
}

static std::pair<Moved, Moved> count(const Lesson& lesson, AttentionOp op, const AttentionSize& size) {
  const LessonContext own(lesson, "emu", 0);
  AttentionInput input(size, lesson.seed);
  const auto since = [] {
    const emu::Traffic t = emu::traffic();
    emu::reset_traffic();
    return Moved{t.loaded, t.stored};
  };
  since();
  Tape tape;
  const Tensor y = op(input.qkv, size.heads, Mask::Causal, 0, 0);
  const Moved forward = since();
  tape.backward(y, input.dy);
  return {forward, since()};
}

std::vector<CountedMoves> count_moves(const Lesson& lesson, AttentionSize size,
                                      const std::vector<int64_t>& lengths) {
  std::vector<CountedMoves> all;
  for (const int64_t T : lengths) {
    size.T = T;
    const auto [plain_fwd, plain_bwd] = count(lesson, attention_plain, size);
    const auto [flash_fwd, flash_bwd] = count(lesson, attention_flash, size);
    all.push_back({size,
                   {plain_fwd, plain_bwd},
                   {flash_fwd, flash_bwd},
                   {flash_fwd_moves(size), flash_bwd_moves(size)}});
  }
  return all;
}

void report_moves(const std::vector<CountedMoves>& all, Report& report) {
  const AttentionSize& first = all.front().size;
  std::cout
      << "(b) Bytes that the GPU kernels load and store, counted on emu, the emulated GPU: one head, D = "
      << first.D << ", " << name_of(first.dtype) << ", causal mask\n\n";
  Table table({"T", "forward, plain", "forward, flash", "plain / flash", "backward, plain", "backward, flash",
               "plain / flash"});
  int64_t different = 0;
  for (const CountedMoves& row : all) {
    std::vector<std::string> cells{count_text(row.size.T)};
    for (const int pass : {0, 1}) {
      const Moved &plain = row.plain[pass], &flash = row.flash[pass], &predicted = row.predicted[pass];
      cells.push_back(bytes_text(plain.total())), cells.push_back(bytes_text(flash.total()));
      cells.push_back(number_text(double(plain.total()) / double(flash.total())));
      different += std::abs(flash.loaded - predicted.loaded) + std::abs(flash.stored - predicted.stored);
    }
    table.row(cells);
  }
  std::cout << table << std::endl;
  report.check_equal("(b) flash: counted bytes, sum of differences from the formula of its tiles", different,
                     0);
}

}  // namespace gradus
