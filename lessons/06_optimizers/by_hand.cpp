#include "lessons/06_optimizers/by_hand.h"

#include <cmath>

#include "src/optim/muon.h"
#include "src/tensor/context.h"

namespace gradus {

static void set_gradient(Parameter& p, const std::vector<double>& values) {
  p.leaf.grad = from_host(p.value.device(), values, p.value.shape(), DType::F32, Kind::Gradient, "g");
  p.leaf.written = true;
}

// A weight of 1 after each of two updates with the gradients 2 and 1, at a learning rate of 0.1.
template <class O, class Args>
static std::vector<std::string> two_updates(const char* name, const Args& args) {
  const Context context("cpu");
  Parameters parameters;
  Parameter& w = parameters.add("w", {1}, {});
  copy_from_host(w.value, {1});
  O optimizer(parameters, args);
  std::vector<std::string> cells{name};
  for (const double g : {2.0, 1.0}) {
    set_gradient(w, {g});
    optimizer.step(0.1);
    std::string states;
    for (const Tensor& t : optimizer.states[0].tensors) states += number_text(to_host<double>(t)[0]) + " ";
    cells.push_back(states + "| " + number_text(to_host<double>(w.value)[0]));
  }
  return cells;
}

// A singular value, which each iteration of newton_schulz() moves towards 1.
static void newton_schulz_by_hand(std::ostream& out) {
  out << "\nMuon, two singular values x of one matrix; an iteration: 3.4445 x - 4.775 x^3 + 2.0315 x^5\n\n";
  Table table({"start", "1", "2", "3", "4", "5"});
  for (double x : {0.5, 0.01}) {
    std::vector<std::string> cells{number_text(x)};
    for (int i = 0; i < 5; ++i) {
      x = 3.4445 * x - 4.775 * std::pow(x, 3) + 2.0315 * std::pow(x, 5);
      cells.push_back(number_text(x));
    }
    table.row(cells);
  }
  out << table;
}

void optimizers_by_hand(std::ostream& out) {
  out << "One weight, w = 1; learning rate 0.1. A cell: the optimizer's states | w, after the update\n\n";
  Table rules({"optimizer", "update 1, g = 2", "update 2, g = 1"});
  rules.row(two_updates<Sgd>("SGD", SgdArgs{}));
  rules.row(two_updates<Sgd>("momentum 0.9", SgdArgs{.momentum = 0.9f}));
  rules.row(two_updates<Sgd>("Nesterov 0.9", SgdArgs{.momentum = 0.9f, .nesterov = true}));
  rules.row(two_updates<AdamW>("AdamW, no weight decay", AdamWArgs{}));
  out << rules;

  const Context context("cpu");
  Parameters parameters;
  Parameter& w = parameters.add("w", {2, 2}, {});
  copy_from_host(w.value, {0, 0, 0, 0});
  set_gradient(w, {1, 2, 3, 1});
  Adafactor optimizer(parameters, {.step_size = StepSize::Given, .most = 1e9f});
  optimizer.step(1);
  const std::vector<Tensor>& states = optimizer.states[0].tensors;
  const std::vector<double> columns = to_host<double>(states[0]), rows = to_host<double>(states[1]),
                            u = to_host<double>(w.value);
  out << "\nAdafactor, one matrix, g = (1 2; 3 1): g^2 rebuilt from its row means and column means\n\n";
  Table table({"g^2", "row mean", "rebuilt g^2", "g / sqrt(rebuilt g^2)"});
  constexpr double g[2][2] = {{1, 2}, {3, 1}};
  const auto two = [](double a, double b) { return number_text(a) + " " + number_text(b); };
  for (int r = 0; r < 2; ++r) {
    const double a = g[r][0] / u[2 * r], b = g[r][1] / u[2 * r + 1];
    table.row({two(g[r][0] * g[r][0], g[r][1] * g[r][1]), number_text(rows[r]), two(a * a, b * b),
               two(-u[2 * r], -u[2 * r + 1])});
  }
  table.row({"column means: " + two(columns[0], columns[1]),
             "of all: " + number_text((rows[0] + rows[1]) / 2), "", ""});
  out << table;
  newton_schulz_by_hand(out);
}

}  // namespace gradus
