// rotary: the pair (x[i], x[i + dims/2]) of each head of q and k is rotated by the angle t base^(-2i/dims),
// where t is its position, so that q k^T depends only on the distance between two positions (Su et al. 2021).
// v and the dimensions from `dims` on do not change. dx: dy, rotated back.   saves nothing.
#include "src/ops/ops.h"

namespace gradus {

Tensor rotary(const Tensor& qkv, Heads heads, int64_t dims, int64_t first, double base) {
  const ProfileRange range("rotary");
  const int64_t D = head_size("rotary", qkv, heads);
  const RotaryShape s{qkv.shape()[0], qkv.shape()[1], heads.q, heads.kv, D, dims, first, base};
  Tensor y = empty_like(qkv, "rotary");
  be(qkv).rotary(ctx(qkv, cost::rotary(s, qkv.dtype())), s, qkv.in(), y.set());
  return record("rotary", {qkv}, {}, y, [s](const Node&, const Tensor& dy, Grads& dx) {
    RotaryShape back = s;
    back.inverse = true;
    const Out out = dx.out(0);
    be(dy).rotary(ctx(dy, cost::rotary(back, dy.dtype())), back, dy.in(), out);
  });
}

}  // namespace gradus
