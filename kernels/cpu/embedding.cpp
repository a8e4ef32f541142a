#include "kernels/cpu/io.h"

namespace gradus::cpu {

static void check_ids(RowShape s, int64_t vocab, CBuf ids) {
  check(ids.t == DType::I32, "embedding: ids are ", name_of(ids.t), "; they must be int32");
  for (int64_t r = 0; r < s.rows; ++r) {
    const int32_t id = ids.as<int32_t>()[r];
    check(id >= 0 && id < vocab, "embedding: id ", id, " at row ", r, " is not in the table of ", vocab,
          " rows");
  }
}

void embedding_fwd(const Ctx&, RowShape s, int64_t vocab, CBuf table, CBuf ids, Out y) {
  check_dtype("embedding_fwd", y.t, table.t, table.p, "table");
  check_ids(s, vocab, ids);
  visit_float("embedding_fwd", y.t, [&]<class T>() {
    visit_write(y.w, [&]<Write W>() {
      parallel_for(s.rows, kGrain / std::max<int64_t>(s.cols, 1) + 1, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const T* row = table.as<T>() + ids.as<int32_t>()[r] * s.cols;
          for (int64_t c = 0; c < s.cols; ++c) store<W>(y.as<T>() + r * s.cols, c, load(row, c));
        }
      });
    });
  });
}

// The rows with ids [begin, end) of the table's gradient. An id may occur many times: its sum is finished in
// `sum` before it is written, once, so that Add rounds once. `order` lists the rows sorted by id, stably.
template <class T, class G, Write W>
static void gather_rows(RowShape s, const int32_t* ids, const int64_t* order, int64_t begin, int64_t end,
                        const T* dy, G* dtable, acc_t<T>* sum) {
  for (int64_t i = begin; i < end;) {
    const int32_t id = ids[order[i]];
    for (int64_t c = 0; c < s.cols; ++c) sum[c] = 0;
    for (; i < end && ids[order[i]] == id; ++i)
      for (int64_t c = 0; c < s.cols; ++c) sum[c] += load(dy + order[i] * s.cols, c);
    for (int64_t c = 0; c < s.cols; ++c) store<W>(dtable + id * s.cols, c, acc_t<G>(sum[c]));
  }
}

void embedding_bwd(const Ctx& ctx, RowShape s, int64_t vocab, CBuf ids, CBuf dy, Out dtable) {
  if (!dtable.wanted()) return;
  check_ids(s, vocab, ids);
  const int32_t* id = ids.as<int32_t>();
  int64_t* order = static_cast<int64_t*>(ctx.scratch);  // rows sorted by (id, row)
  for (int64_t r = 0; r < s.rows; ++r) order[r] = r;
  std::sort(order, order + s.rows,
            [id](int64_t a, int64_t b) { return std::pair(id[a], a) < std::pair(id[b], b); });
  if (dtable.w == Write::Set) fill(ctx, vocab * s.cols, dtable, 0.0);
  visit_float("embedding_bwd", dy.t, [&]<class T>() {
    void* sum = order + s.rows;
    visit_float("embedding_bwd", dtable.t, [&]<class G>() {
      visit_write(dtable.w, [&]<Write W>() {
        gather_rows<T, G, W>(s, id, order, 0, s.rows, dy.as<T>(), dtable.as<G>(),
                             static_cast<acc_t<T>*>(sum));
      });
    });
  });
}

}  // namespace gradus::cpu
