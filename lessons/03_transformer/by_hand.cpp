#include "lessons/03_transformer/by_hand.h"

#include <cmath>

#include "src/core/table.h"
#include "src/ops/ops.h"
#include "src/tensor/context.h"

namespace gradus {

static Tensor numbers(const std::vector<double>& values, const Shape& shape) {
  return from_host(current().device, values, shape, DType::F64, Kind::Data, "numbers");
}

void attention_by_hand(std::ostream& out) {
  Context context("cpu");
  const double q[] = {1, 1}, k[] = {0, std::log(3)}, v[] = {4, 8};
  const Tensor qkv = numbers({q[0], k[0], v[0], q[1], k[1], v[1]}, {1, 2, 3});
  const std::vector<double> y = to_host<double>(attention_plain(qkv, 1, Mask::Causal, 0));
  const std::vector<double> scores{q[1] * k[0], q[1] * k[1]};
  const std::vector<double> p = to_host<double>(softmax(numbers(scores, {1, 2})));
  Table table({"token", "q", "k", "v", "scores q·k", "softmax", "output"});
  table.row({"1", number_text(q[0]), number_text(k[0]), number_text(v[0]), number_text(q[0] * k[0]), "1",
             number_text(y[0])});
  table.row({"2", number_text(q[1]), number_text(k[1]), number_text(v[1]),
             number_text(scores[0]) + ", " + number_text(scores[1]),
             number_text(p[0]) + ", " + number_text(p[1]), number_text(y[1])});
  const Tensor target =
      from_host(context.device, std::vector<int32_t>{1}, {1}, DType::I32, Kind::Data, "target");
  out << table
      << "\nIf these scores are the logits of two bytes and the second byte is the target, the loss is -ln "
      << number_text(p[1]) << " = " << number_text(item(cross_entropy(numbers(scores, {1, 2}), target)))
      << " nats.\n";
}

}  // namespace gradus
