#include "lessons/19_tensor_parallel/layer.h"

#include "src/core/table.h"
#include "src/parallel/comm/cluster.h"
#include "src/parallel/rank_ops.h"
#include "src/tensor/context.h"

namespace gradus {

static Tensor numbers(const std::vector<double>& values, const Shape& shape) {
  return from_host(current().device, values, shape, DType::F32, Kind::Temporary, "numbers");
}
static std::string text_of(const Tensor& x) {
  std::string text;
  for (const double v : to_host<double>(x)) text += (text.empty() ? "(" : ", ") + number_text(v);
  return text + ")";
}

void layers_by_hand(std::ostream& out) {
  out << "y = W2 W1 x on two ranks, with x = (1, 2) and dy = (1, 1). The rows of W1 are (1, 1) and (2, 0),\n"
         "the columns of W2 are (1, 0) and (2, 3). Rank r has row r of W1 and column r of W2.\n\n";
  Table table({"rank", "W1 x", "partial sum of y", "y", "partial sum of dx", "dx"});
  std::vector<std::string> rows[2];
  run_cluster({.ranks = 2}, [&](Comm& comm) {
    const bool first = comm.rank() == 0;
    const Tensor w1 = numbers(first ? std::vector<double>{1, 1} : std::vector<double>{2, 0}, {1, 2}),
                 w2 = numbers(first ? std::vector<double>{1, 0} : std::vector<double>{2, 3}, {2, 1});
    std::vector<std::string> cells{std::to_string(comm.rank())}, gradients;
    for (const bool together : {false, true}) {
      Leaf leaf;
      Tensor x = numbers({1, 2}, {1, 1, 2});
      attach(x, leaf, "x");
      Tape tape;
      const Tensor h = linear(together ? copy_to_ranks(comm, x) : x, w1);
      if (!together) cells.push_back(text_of(h));
      const Tensor part = linear(h, w2), y = together ? sum_from_ranks(comm, part) : part;
      cells.push_back(text_of(y));
      tape.backward(y, numbers({1, 1}, {1, 1, 2}));
      gradients.push_back(text_of(leaf.grad));
    }
    cells.insert(cells.end(), gradients.begin(), gradients.end());
    rows[comm.rank()] = cells;
  });
  for (const auto& cells : rows) table.row(cells);
  out << table;
}

}  // namespace gradus
