// Shared by the tests of a vocabulary in parts: the parts, their ids, and targets of each kind.
#pragma once
#include "tests/kernels/kernel_contract.h"

namespace gradus {

using Ids = SharedVector<int32_t>;
inline CBuf in(const Ids& ids) { return {ids.data(), DType::I32}; }

struct IdRange {
  int64_t first, count;
};
// Consecutive parts with these numbers of ids.
inline std::vector<IdRange> ranges(const std::vector<int64_t>& counts) {
  std::vector<IdRange> ranges;
  int64_t first = 0;
  for (const int64_t count : counts) ranges.push_back({first, count}), first += count;
  return ranges;
}
inline int32_t expected_id(int32_t id, const IdRange& part) {
  if (id < 0) return id;
  return id >= part.first && id < part.first + part.count ? int32_t(id - part.first) : kElsewhere;
}
// local_ids of `ids`, with memory around the output that must not change.
inline Ids local_ids(const Ids& ids, int64_t all, const IdRange& part) {
  constexpr int32_t kGuard = 0x5A5A'5A5A;
  const int64_t n = int64_t(ids.size());
  Ids y(n + 2, kGuard);
  TestCtx ctx(cost::local_ids(n));
  table().local_ids(ctx, n, all, part.first, part.count, in(ids), {y.data() + 1, DType::I32, Write::Set});
  wait_for_kernels();
  EXPECT_TRUE(y.front() == kGuard && y.back() == kGuard) << "local_ids writes before or after y";
  return Ids(y.begin() + 1, y.end() - 1);
}

// Targets: some are elsewhere, some do not count, the others are columns; or all are elsewhere.
inline Ids some_targets(RowShape s, bool all_elsewhere = false) {
  Ids ids(s.rows, kElsewhere);
  for (int64_t r = 0; !all_elsewhere && r < s.rows; ++r)
    if (r % 4 != 1) ids[r] = r % 4 == 2 ? -1 : int32_t(r * 7 % s.cols);
  return ids;
}

}  // namespace gradus
