// The part of a sharded parameter that one rank keeps.
#pragma once
#include <algorithm>
#include <vector>

#include "src/core/shape.h"

namespace gradus {

// Blocks of `length` elements of the whole, `stride` apart, from `begin` on. Of the elements of these blocks,
// numbered from block to block, the shard has `count` elements from `first` on.
struct Shard {
  Shape whole;
  int64_t begin = 0, length = 0, stride = 0, first = 0, count = 0;

  static Shard of(const Shape& whole) { return {whole, 0, whole.numel(), whole.numel(), 0, whole.numel()}; }
  // The rows [row, row + rows) of a weight (out, in) or a bias (out), or of each of `groups` equal parts of
  // its rows (for example of q, k and v).
  static Shard of_rows(const Shape& whole, int64_t row, int64_t rows, int64_t groups = 1) {
    check(whole.rank() > 0 && groups > 0 && whole[0] % groups == 0 && row >= 0 && rows >= 0 &&
              row <= whole[0] / groups - rows,
          "shard: ", whole, " in ", groups, " groups of rows has no ", rows, " rows from ", row,
          " on in each");
    const int64_t in = whole.numel() / std::max<int64_t>(whole[0], 1), each = whole[0] / groups;
    return {whole, row * in, rows * in, each * in, 0, groups * rows * in};
  }
  // The columns [column, column + columns) of each row of a weight (out, in).
  static Shard of_columns(const Shape& whole, int64_t column, int64_t columns) {
    check(whole.rank() == 2 && column >= 0 && columns >= 0 && column <= whole[1] - columns, "shard: ", whole,
          " has no ", columns, " columns from ", column, " on");
    return {whole, column, columns, whole[1], 0, whole[0] * columns};
  }
  // The shard that has the elements [at, at + n) of this one.
  Shard part(int64_t at, int64_t n) const {
    check(at >= 0 && n >= 0 && at <= count - n, "shard: it has ", count, " elements, so it has no ", n,
          " elements from ", at, " on");
    Shard s = *this;
    s.first += at, s.count = n;
    return s;
  }

  // Calls f(index in the whole, index in the shard, count) for each range of adjacent elements.
  template <class F>
  void each_range(F f) const {
    for (int64_t at = 0, n; at < count; at += n) {
      const int64_t block = (first + at) / length, within = (first + at) % length;
      n = stride == length ? count - at : std::min(length - within, count - at);
      f(begin + block * stride + within, at, n);
    }
  }
  std::vector<double> of_values(const std::vector<double>& all) const {
    std::vector<double> own(static_cast<size_t>(count));
    each_range(
        [&](int64_t from, int64_t to, int64_t n) { std::copy_n(&all[size_t(from)], n, &own[size_t(to)]); });
    return own;
  }
};

}  // namespace gradus
