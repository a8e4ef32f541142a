// embedding: y[r,:] = table[ids[r],:].   dtable[id,:] = sum of dy[r,:] over the rows r with that id.   saves:
// ids.
#include "src/ops/ops.h"

namespace gradus {

static void embedding_op_bwd(const Node& n, const Tensor& dy, Grads& dx) {
  const Out dtable = dx.out(0);
  be(dy).embedding_bwd(ctx(dy, cost::embedding_bwd(dy.rows(), dy.dtype())), dy.rows(), n.inputs[0].shape[0],
                       n.saved[0].in(), dy.in(), dtable);
}

Tensor embedding(const Tensor& table, const Tensor& ids) {
  const ProfileRange range("embedding");
  check(table.shape().rank() == 2, "embedding: table is ", table.shape(), "; it must be (vocabulary, C)");
  check(ids.dtype() == DType::I32, "embedding: table is ", table.shape(), ", ids are ", ids.shape(), " ",
        name_of(ids.dtype()), "; ids must be int32");
  Shape shape = ids.shape();
  shape.push_back(table.last());
  Tensor y = empty(table, shape, "embedding");
  be(table).embedding_fwd(ctx(table, cost::embedding_fwd(y.rows(), y.dtype())), y.rows(), table.shape()[0],
                          table.in(), ids.in(), y.set());
  return record("embedding", {table}, {{ids, needed_by(table)}}, y, embedding_op_bwd);
}

}  // namespace gradus
