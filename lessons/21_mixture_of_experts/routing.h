// The router: the example by hand, the balance loss in its two special cases, and the choices of a trained
// router.
#pragma once
#include <iosfwd>

#include "lessons/21_mixture_of_experts/kinds.h"
#include "src/nn/transformer.h"
#include "src/train/report.h"

namespace gradus {

// Routes four tokens to two of three experts with two places each, and prints weights and places.
void routing_by_hand(std::ostream& out);

// Prints table (b): the balance loss if the experts get equal shares of the choices, and if all tokens choose
// the same experts.
void balance_table(Report& report);
// Checks measured losses, each with its expected value.
void check_balance(const std::vector<std::pair<double, double>>& losses, Report& report);

// shares[block][kind][expert]: the share of the choices of a grammar's tokens, in the held-out text, that
// fell on the expert.
using ExpertShares = std::vector<std::vector<std::vector<double>>>;
struct RoutedText {
  ExpertShares shares;
  double dropped = 0;      // share of all choices, in all blocks, that found no place
  int64_t most_taken = 0;  // the largest number of places that one sequence takes in one expert
};
RoutedText route_held_out(const Transformer& model, const KindsText& text);

// Prints table (c) and draws it.
void experts_table(const RoutedText& routed, const KindsText& text, const TransformerConfig& c,
                   const std::string& plot, Report& report);

}  // namespace gradus
