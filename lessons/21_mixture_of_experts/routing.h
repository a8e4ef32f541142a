// The router: what it does by hand, the balance loss at its two ends, and what a trained one chooses.
#pragma once
#include <iosfwd>

#include "lessons/21_mixture_of_experts/kinds.h"
#include "src/nn/transformer.h"
#include "src/train/report.h"

namespace gradus {

// Four tokens, three experts, two choices each, two places: who goes where, printed by the engine.
void routing_by_hand(std::ostream& out);

// Table (b): the balance loss of a router that divides tokens evenly, and of one that sends all to the same
// experts.
void balance_table(Report& report);

// choices[block][kind][expert]: which share of the choices of a kind's tokens, in the held-out text, fell on
// an expert. Empty without data.
using ExpertShares = std::vector<std::vector<std::vector<double>>>;
struct RoutedText {
  ExpertShares shares;
  double dropped = 0;      // share of all choices that found no place
  int64_t most_taken = 0;  // of an expert's places for a sequence
};
RoutedText route_held_out(const Transformer& model, const KindsText& text);

// Table (c) and its picture.
void experts_table(const RoutedText& routed, const KindsText& text, const TransformerConfig& c,
                   const std::string& plot, Report& report);

}  // namespace gradus
