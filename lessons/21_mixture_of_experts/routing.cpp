#include "lessons/21_mixture_of_experts/routing.h"

#include <algorithm>
#include <cmath>
#include <iostream>

#include "lessons/21_mixture_of_experts/runs.h"
#include "src/core/larger.h"
#include "src/core/table.h"
#include "src/io/atomic_file.h"
#include "src/io/plot.h"
#include "src/tensor/context.h"

namespace gradus {

static Tensor tensor_of(const std::vector<float>& values, const Shape& shape) {
  return from_host(current().device, values, shape, DType::F32, Kind::Temporary, "routing");
}

void routing_by_hand(std::ostream& out) {
  Context context("cpu", 1);
  constexpr int64_t T = 4, E = 3, k = 2, places = 2;
  const std::vector<float> logits{2, 1, 0, 3, 1, 2, 1, 0, 3, 0, 2, 1};
  const Routing r = choose_experts(tensor_of(logits, {1, T, E}), k, places);
  const auto experts = to_host<int32_t>(r.experts), slots = to_host<int32_t>(r.slots);
  const auto weights = to_host<double>(r.weights);
  out << "A sequence of " << T << " tokens, " << E << " experts with " << places
      << " places each; each token is routed to " << k << " experts.\n";
  Table table({"token", "logits of experts 0 1 2", "first expert", "weight", "place", "second expert",
               "weight ", "place "});
  for (size_t t = 0; t < size_t(T); ++t) {
    std::vector<std::string> cells{std::to_string(t)};
    std::string text;
    for (size_t e = 0; e < size_t(E); ++e)
      text += number_text(logits[t * E + e]) + (e + 1 < size_t(E) ? " " : "");
    cells.push_back(text);
    for (size_t i = t * k; i < (t + 1) * k; ++i) {
      cells.push_back(std::to_string(experts[i]));
      cells.push_back(number_text(std::round(weights[i] * 1000) / 1000));
      cells.push_back(slots[i] == kElsewhere ? "none" : std::to_string(slots[i] % places));
    }
    table.row(cells);
  }
  out << table
      << "Balance loss / alpha: " << number_text(item(balance_loss(tensor_of(logits, {1, T, E}), r, 1)))
      << "\n";
}

// The balance loss of T tokens if token t has large logits for the experts favourite(t, j), j < k, and 0 for
// the others.
template <class F>
static double balance_of(int64_t T, int64_t E, int64_t k, double alpha, F favourite) {
  std::vector<float> logits(size_t(T * E));
  for (int64_t t = 0; t < T; ++t)
    for (int64_t j = 0; j < k; ++j) logits[size_t(t * E + favourite(t, j))] = 40;
  const Tensor x = tensor_of(logits, {1, T, E});
  return item(balance_loss(x, choose_experts(x, k, T), alpha));
}

void balance_table(Report& report) {
  constexpr double alpha = 0.01;
  constexpr int64_t T = 64;
  std::cout << "\n(b) The balance loss of one block, alpha = " << number_text(alpha) << "\n";
  Table table({"experts", "experts per token", "measured, equal shares", "expected: alpha",
               "measured, all tokens to the same experts", "expected: alpha E / k"});
  std::vector<std::pair<double, double>> losses;
  for (const auto& [E, k] : {std::pair<int64_t, int64_t>{4, 1}, {8, 1}, {8, 2}, {64, 8}}) {
    const double even = balance_of(T, E, k, alpha,
                                   [E = E, k = k](int64_t t, int64_t j) { return (t * k + j) % E; }),
                 same = balance_of(T, E, k, alpha, [](int64_t, int64_t j) { return j; }),
                 most = alpha * double(E) / double(k);
    losses.insert(losses.end(), {{even, alpha}, {same, most}});
    table.row({std::to_string(E), std::to_string(k), measured_text(even), number_text(alpha),
               measured_text(same), number_text(most)});
  }
  std::cout << table;
  check_balance(losses, report);
}

void check_balance(const std::vector<std::pair<double, double>>& losses, Report& report) {
  double off = 0;
  for (const auto& [measured, expected] : losses) off = larger(off, std::abs(measured - expected) / expected);
  report.check_at_most("(b) largest relative difference of a balance loss from alpha or alpha E / k", off,
                       1e-6);
}

RoutedText route_held_out(const Transformer& model, const KindsText& text) {
  const Evaluation evaluation;
  const TransformerConfig& c = model.config;
  const int64_t T = c.context, kinds = int64_t(text.names.size()), k = c.chosen, B = 16,
                places = c.expert_capacity(T);
  RoutedText routed;
  routed.shares.assign(size_t(c.layers), std::vector(size_t(kinds), std::vector(size_t(c.experts), 0.0)));
  int64_t choices = 0, dropped = 0;
  for (int64_t start = text.corpus.split; start + B * T < int64_t(text.kind.size()); start += B * T) {
    std::vector<int32_t> ids(size_t(B * T));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = uint8_t(text.corpus.bytes[size_t(start) + i]);
    model.logits(from_host(current().device, ids, {B, T}, DType::I32, Kind::Data, "inputs"));
    for (size_t l = 0; l < model.blocks.size(); ++l) {
      const Routing& r = model.blocks[l].routed->routing;
      const auto experts = to_host<int32_t>(r.experts), slots = to_host<int32_t>(r.slots);
      for (size_t i = 0; i < experts.size(); ++i) {
        const size_t kind = text.kind[size_t(start) + i / size_t(k)];
        routed.shares[l][kind][size_t(experts[i])] += 1;
        ++choices;
        if (slots[i] == kElsewhere)
          ++dropped;
        else
          routed.most_taken = std::max(routed.most_taken, slots[i] % places + 1);
      }
    }
  }
  for (auto& block : routed.shares)
    for (auto& kind : block) {
      double sum = 0;
      for (const double n : kind) sum += n;
      for (double& n : kind) n /= std::max(sum, 1.0);
    }
  routed.dropped = double(dropped) / double(std::max<int64_t>(choices, 1));
  return routed;
}

void experts_table(const RoutedText& routed, const KindsText& text, const TransformerConfig& c,
                   const std::string& plot, Report& report) {
  const auto& last = routed.shares.back();
  std::cout
      << "\n(c) Last block, held-out text: of all choices of a grammar's tokens, the share of each expert "
         "(equal shares: "
      << percent_text(1.0 / double(c.experts)) << ")\n";
  std::vector<std::string> header{"grammar"};
  for (int64_t e = 0; e < c.experts; ++e) header.push_back("expert " + std::to_string(e));
  Table table(header);
  LinePlot chart{"Choices of each grammar's tokens (last block, held-out text)",
                 "expert",
                 "share of the grammar's choices",
                 {},
                 {{"equal shares", 1.0 / double(c.experts)}}};
  for (size_t kind = 0; kind < last.size(); ++kind) {
    std::vector<std::string> cells{text.names[kind]};
    Series series{text.names[kind], {}, last[kind], Series::Marks::Dots};
    for (const double share : last[kind]) {
      series.x.push_back(double(series.x.size()));
      cells.push_back(percent_text(share));
    }
    table.row(cells);
    chart.series.push_back(series);
  }
  std::cout << table << "choices per sequence: " << c.chosen * c.context
            << "; places per expert and sequence: " << c.expert_capacity(c.context) << "\n"
            << "dropped choices, all blocks: " << percent_text(routed.dropped) << "\n";
  write_file(plot, draw(chart));
  report.check_at_most("(c) largest number of places that one sequence takes in one expert",
                       double(routed.most_taken), double(c.expert_capacity(c.context)));
}

}  // namespace gradus
