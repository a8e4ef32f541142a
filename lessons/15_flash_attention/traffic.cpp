#include "lessons/15_flash_attention/traffic.h"

#include <algorithm>
#include <iostream>

#include "kernels/cost.h"
#include "kernels/cuda/attention_sizes.h"
#include "kernels/emu/traffic.h"
#include "lessons/15_flash_attention/compare.h"
#include "src/autograd/tape.h"
#include "src/core/table.h"

namespace gradus {

// The sum of f(first, end) over a head's tiles of `rows` rows, for `heads` heads of each sample.
template <class F>
static int64_t sum_tiles(const AttentionShape& s, int64_t heads, int64_t rows, F f) {
  int64_t sum = 0;
  for (int64_t first = 0; first < s.T; first += rows) sum += f(first, std::min(first + rows, s.T));
  return s.B * heads * sum;
}
// Keys of queries before `end`, and queries of keys from `first` on: those that the mask leaves to a tile.
static int64_t keys(const AttentionShape& s, int64_t end) { return s.mask == Mask::Causal ? end : s.T; }
static int64_t queries(const AttentionShape& s, int64_t first) {
  return s.mask == Mask::Causal ? s.T - first : s.T;
}
static int64_t of_queries(const AttentionShape& s) { return s.B * s.H * s.T; }
static int64_t of_keys(const AttentionShape& s) { return s.B * s.KV * s.T; }

// A float of each query (log-sum-exp, rowsum) is read by the 16 threads that share a row of a tile.
constexpr int64_t kStatistic = sizeof(float), kReaders = kSide;

Moved flash_fwd_moves(const AttentionShape& s, DType t) {
  const int64_t tile = flash_fwd_tile(s.D);
  const int64_t vectors = sum_tiles(s, s.H, tile, [&](int64_t first, int64_t end) {
    const int64_t met = std::min((keys(s, end) + tile - 1) / tile * tile, s.T);  // keys, in whole tiles
    return end - first + 2 * met;                                                // q; k and v
  });
  return {vectors * s.D * size_of(t), of_queries(s) * (s.D * size_of(t) + kStatistic)};
}

Moved flash_bwd_moves(const AttentionShape& s, DType t) {
  const int64_t rowsum = 2 * of_queries(s);  // dy and y
  const int64_t dq = sum_tiles(s, s.H, kBwdTile, [&](int64_t first, int64_t end) {
    const int64_t met = std::min((keys(s, end) + kBwdTile - 1) / kBwdTile * kBwdTile, s.T);
    return 2 * (end - first) + 3 * met;  // q, dy; k for the scores, v for dP, k for dq
  });
  int64_t met = 0;
  const int64_t dkv = sum_tiles(s, s.KV, kBwdTile, [&](int64_t first, int64_t end) {
    met += queries(s, first);
    return 2 * (end - first) + 3 * s.group() * queries(s, first);  // k, v; q for the scores, dy, q for dk
  });
  const int64_t statistics = kReaders * 2 * (of_queries(s) + s.B * s.H * met);
  return {(rowsum + dq + dkv) * s.D * size_of(t) + statistics * kStatistic,
          (of_queries(s) + 2 * of_keys(s)) * s.D * size_of(t) + of_queries(s) * kStatistic};
}

Moved plain_fwd_moves(const AttentionShape& s, DType t) {
  const int64_t vectors = sum_tiles(s, s.H, kPlainRows, [&](int64_t first, int64_t end) {
    return end - first + 2 * keys(s, end);  // q; k and v
  });
  return {vectors * s.D * size_of(t), of_queries(s) * (s.D + s.T) * size_of(t)};  // y; probabilities
}

Moved plain_bwd_moves(const AttentionShape& s, DType t) {
  const int64_t dq = sum_tiles(s, s.H, kPlainRows, [&](int64_t first, int64_t end) {
    return end - first + 2 * keys(s, end);  // dy; v for dP, k for dq
  });
  const int64_t dkv = sum_tiles(s, s.KV, kPlainRows, [&](int64_t first, int64_t end) {
    return end - first + s.group() * 3 * queries(s, first);  // v; dy for dP, q for dk, dy for dv
  });
  const int64_t weights = 4 * cost::attention_pairs(s);  // two times for dq, once each for dk and dv
  return {((dq + dkv) * s.D + weights) * size_of(t) + cost::attention_pairs(s) * kStatistic,
          (of_queries(s) + 2 * of_keys(s)) * s.D * size_of(t) + of_queries(s) * kStatistic};
}

struct Counted {
  Moved forward, backward;
};
static Counted count_on_emu(const Lesson& lesson, AttentionOp op, const AttentionSize& size) {
  const LessonContext own(lesson, "emu", 0);
  AttentionInput input(size, lesson.seed);
  Counted counted;
  const auto since = [] {
    const emu::Traffic t = emu::traffic();
    emu::reset_traffic();
    return Moved{t.loaded, t.stored};
  };
  emu::reset_traffic();
  Tape tape;
  const Tensor y = op(input.qkv, size.heads, Mask::Causal, 0, 0);
  counted.forward = since();
  tape.backward(y, input.dy);
  counted.backward = since();
  return counted;
}

void report_moves(const Lesson& lesson, int64_t D, const std::vector<int64_t>& lengths, Report& report) {
  std::cout << "(b) Bytes that the GPU's kernels load and store, counted on emu: one head of " << D
            << ", fp32\n\n";
  Table table({"T", "forward: plain", "flash", "plain ÷ flash", "backward: plain", "flash", "plain ÷ flash"});
  constexpr const char* kKernels[] = {"plain, forward", "plain, backward", "flash, forward",
                                      "flash, backward"};
  int64_t different[4] = {};
  for (const int64_t T : lengths) {
    const AttentionSize size{.B = 1, .T = T, .heads = 1, .D = D};
    const AttentionShape s = size.shape();
    const Counted plain = count_on_emu(lesson, attention_plain, size),
                  flash = count_on_emu(lesson, attention_flash, size);
    const auto row = [](const Moved& p, const Moved& f) {
      return std::vector{bytes_text(p.total()), bytes_text(f.total()),
                         number_text(double(p.total()) / double(f.total()))};
    };
    std::vector<std::string> cells = row(plain.forward, flash.forward);
    for (const std::string& cell : row(plain.backward, flash.backward)) cells.push_back(cell);
    cells.insert(cells.begin(), count_text(T));
    table.row(cells);
    const Moved counted[] = {plain.forward, plain.backward, flash.forward, flash.backward};
    const Moved predicted[] = {plain_fwd_moves(s, size.dtype), plain_bwd_moves(s, size.dtype),
                               flash_fwd_moves(s, size.dtype), flash_bwd_moves(s, size.dtype)};
    for (int k = 0; k < 4; ++k)
      different[k] += std::abs(counted[k].loaded - predicted[k].loaded) +
                      std::abs(counted[k].stored - predicted[k].stored);
  }
  std::cout << table << std::endl;
  for (int k = 0; k < 4; ++k)
    report.check_equal(std::string(kKernels[k]) + " on emu: bytes unlike the formula", different[k], 0);
}

}  // namespace gradus
