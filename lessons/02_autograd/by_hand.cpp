#include "lessons/02_autograd/by_hand.h"

#include <functional>

#include "src/core/table.h"
#include "src/ops/ops.h"
#include "src/tensor/context.h"

namespace gradus {

using Function = std::function<Tensor(const Tensor&)>;

// f(x) and its gradient with respect to x, computed with a new tape.
struct Point {
  std::string value, gradient;
};
static Point at(double x, const Function& f) {
  Tensor value = from_host(current().device, std::vector<double>{x}, {1}, DType::F64, Kind::Data, "x");
  Leaf leaf;
  attach(value, leaf, "x");
  Tape tape;
  const Tensor y = f(value);
  const double result = item(y);
  tape.backward(y);
  return {number_text(result), number_text(item(leaf.grad))};
}

void gradients_by_hand(std::ostream& out) {
  const Context context("cpu");
  const Function twice = [](const Tensor& a) { return scale(a, 2); };
  const Function c = [](const Tensor& b) { return tanh(b); };
  const Function d = [](const Tensor& b) { return add(b, tanh(b)); };
  const Point from_a = at(0.5, [&](const Tensor& a) { return d(twice(a)); });
  const Point from_b = at(1, d), of_tanh = at(1, c);
  out << "a = 0.5, b = 2 a, c = tanh b, d = b + c; the backward pass starts with dd = 1 and ends with da\n\n";
  Table tape({"node", "forward", "backward", "gradient"});
  tape.row({"scale", "b = 2 a = " + at(0.5, twice).value, "da = 2 db", "da = " + from_a.gradient});
  tape.row({"tanh", "c = tanh b = " + of_tanh.value, "db += dc tanh'(b)",
            "db = 1 + " + of_tanh.gradient + " = " + from_b.gradient});
  tape.row({"add", "d = b + c = " + from_b.value, "db = dd, dc = dd", "db = 1, dc = 1"});
  out << tape;
}

}  // namespace gradus
