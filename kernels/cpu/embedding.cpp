#include "kernels/cpu/io.h"

namespace gradus::cpu {

static void check_ids(RowShape s, int64_t vocab, CBuf ids) {
  for (int64_t r = 0; r < s.rows; ++r) {
    const int32_t id = ids.as<int32_t>()[r];
    check((id >= 0 && id < vocab) || id == kElsewhere, "embedding: id ", id, " at row ", r,
          " is not in the table of ", vocab, " rows");
  }
}

void embedding_fwd(const Ctx&, RowShape s, int64_t vocab, CBuf table, CBuf ids, Out y) {
  check_embedding_fwd(table, ids, y);
  check_ids(s, vocab, ids);
  visit_out("embedding_fwd", y, [&]<class T, Write W>() {
    for_rows(s, [&](int64_t r) {
      const int32_t id = ids.as<int32_t>()[r];
      T* const row = y.as<T>() + r * s.cols;
      if (id >= 0)
        copy_row<W>(s.cols, table.as<T>() + id * s.cols, row);
      else if (W == Write::Set)
        std::fill_n(row, s.cols, T(acc_t<T>(0)));
    });
  });
}

// Computes columns [at, at + n) of the table's gradient. An id may occur many times; its complete sum is
// written once, so that Add rounds once. `order` lists the rows sorted by (id, row). n <= kChunk.
template <class T>
static void gather_columns(RowShape s, const int32_t* ids, const int64_t* order, int64_t at, int64_t n,
                           const T* dy, Out dtable) {
  acc_t<T> sum[kChunk];
  for (int64_t i = 0; i < s.rows;) {
    const int32_t id = ids[order[i]];
    std::fill_n(sum, n, acc_t<T>(0));
    for (; i < s.rows && ids[order[i]] == id; ++i) add_row(n, dy + order[i] * s.cols + at, sum);
    if (id < 0) continue;
    write("embedding_bwd", n, sum, dtable, id * s.cols + at);
  }
}

// The threads share the columns, not the ids, because some ids are far more frequent than others.
void embedding_bwd(const Ctx& ctx, RowShape s, int64_t vocab, CBuf ids, CBuf dy, Out dtable) {
  check_embedding_bwd(ids, dy, dtable);
  check_ids(s, vocab, ids);
  if (!dtable.wanted()) return;
  const int32_t* id = ids.as<int32_t>();
  int64_t* order = static_cast<int64_t*>(ctx.scratch);
  for (int64_t r = 0; r < s.rows; ++r) order[r] = r;
  std::sort(order, order + s.rows,
            [id](int64_t a, int64_t b) { return std::pair(id[a], a) < std::pair(id[b], b); });
  if (dtable.w == Write::Set) fill(ctx, vocab * s.cols, dtable, 0.0);
  visit_float("embedding_bwd", dy.t, [&]<class T>() {
    const int64_t grain = std::max<int64_t>(kGrain / std::max<int64_t>(s.rows, 1), 64);
    parallel_for(s.cols, grain, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; at += kChunk)
        gather_columns(s, id, order, at, std::min(kChunk, end - at), dy.as<T>(), dtable);
    });
  });
}

}  // namespace gradus::cpu
