// Parts of the last dimension, as copies: slice takes one part, split takes all, concatenate joins them.
//   slice:        y[..., c] = x[..., begin + c].        dx: dy in this part, 0 elsewhere.
//   split:        adjacent slices that make up x.       dx: all dy, joined.
//   concatenate:  y = all x, joined.                    dx_i: the slice of dy.
// They save nothing. With a reshape they also take parts of an outer dimension: select_token takes C of the T
// C columns of (B, T C).
#include <algorithm>
#include <utility>

#include "src/ops/ops.h"

namespace gradus {

// Copies `cols` columns of `from`, from `x_begin` on, to the columns from `y_begin` on of a tensor with
// `y_row` columns.
static void copy_columns(const Tensor& from, int64_t x_begin, int64_t cols, Out y, int64_t y_row,
                         int64_t y_begin) {
  const RowShape s{from.rows().rows, cols};
  be(from).cast_columns(ctx(from, cost::cast_columns(s, from.dtype(), y.t)), s, from.last(),
                        from.in().from(x_begin), y_row, y.from(y_begin));
}

static void fill_with_zeros(const Tensor& like, int64_t n, Out y) {
  be(like).fill(ctx(like, cost::fill(n, y.t)), n, y, 0.0);
}

Tensor slice(const Tensor& x, int64_t begin, int64_t count) {
  const ProfileRange range("slice");
  check(x.shape().rank() > 0 && begin >= 0 && count >= 0 && begin <= x.last() - count, "slice: x is ",
        x.shape(), "; there are no ", count, " columns from ", begin, " on");
  Tensor y = empty(x, x.shape().with_last(count), "slice");
  copy_columns(x, begin, count, y.set(), count, 0);
  return record("slice", {x}, {}, y, [begin](const Node& n, const Tensor& dy, Grads& dx) {
    const Shape& whole = n.inputs[0].shape;
    const Out out = dx.out(0);
    if (out.w == Write::Set) fill_with_zeros(dy, whole.numel(), out);
    copy_columns(dy, 0, dy.last(), out, whole[-1], begin);
  });
}

std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& counts) {
  const ProfileRange range("split");
  int64_t rest = x.last();
  for (const int64_t count : counts) rest = count >= 0 && count <= rest ? rest - count : -1;
  check(x.shape().rank() > 0 && rest == 0, "split: x is ", x.shape(),
        "; the columns of the parts must be 0 or more, and add up to its last dimension");
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (const int64_t count : counts) {
    Tensor& y = parts.emplace_back(empty(x, x.shape().with_last(count), "split"));
    copy_columns(x, std::exchange(begin, begin + count), count, y.set(), count, 0);
  }
  return record("split", {x}, {}, parts, [](const Node& n, const std::vector<Tensor>& dy, Grads& dx) {
    const Shape& whole = n.inputs[0].shape;
    const Out out = dx.out(0);
    const auto there = std::find_if(dy.begin(), dy.end(), [](const Tensor& t) { return t.defined(); });
    const bool all = std::all_of(dy.begin(), dy.end(), [](const Tensor& t) { return t.defined(); });
    if (out.w == Write::Set && !all) fill_with_zeros(*there, whole.numel(), out);
    int64_t begin = 0;
    for (size_t i = 0; i < dy.size(); begin += n.outputs[i++].shape[-1])
      if (dy[i].defined()) copy_columns(dy[i], 0, dy[i].last(), out, whole[-1], begin);
  });
}

Tensor concatenate(const std::vector<Tensor>& parts) {
  const ProfileRange range("concatenate");
  check(!parts.empty() && parts[0].shape().rank() > 0, "concatenate: there is nothing to join");
  int64_t last = 0;
  for (const Tensor& x : parts) {
    check(x.dtype() == parts[0].dtype() && x.shape().rank() > 0 &&
              x.shape().with_last(0) == parts[0].shape().with_last(0),
          "concatenate: a part is ", x.shape(), " ", name_of(x.dtype()), ", the first is ", parts[0].shape(),
          " ", name_of(parts[0].dtype()), "; all but the last dimension must be equal");
    last += x.last();
  }
  Tensor y = empty(parts[0], parts[0].shape().with_last(last), "concatenate");
  const Out out = y.set();
  int64_t begin = 0;
  for (const Tensor& x : parts)
    copy_columns(x, 0, x.last(), out, last, std::exchange(begin, begin + x.last()));
  return record("concatenate", parts, {}, y, [](const Node& n, const Tensor& dy, Grads& dx) {
    int64_t begin = 0;
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      const int64_t count = n.inputs[i].shape[-1];
      if (dx.wanted(int(i))) copy_columns(dy, begin, count, dx.out(int(i)), count, 0);
      begin += count;
    }
  });
}

Tensor select_token(const Tensor& x, int64_t t) {
  check(x.shape().rank() == 3 && t >= 0 && t < x.shape()[1], "select_token: x is ", x.shape(), ", t is ", t,
        "; x must be (B,T,C) with t from 0 to T - 1");
  const int64_t B = x.shape()[0], T = x.shape()[1], C = x.last();
  return slice(x.reshape({B, T * C}), t * C, C);
}

}  // namespace gradus
