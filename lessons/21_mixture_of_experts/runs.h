// The three models that are compared, and what came of training them.
#pragma once
#include "src/data/loader.h"
#include "src/nn/transformer.h"
#include "src/train/report.h"

namespace gradus {

struct MixtureSizes {
  TransformerConfig mixture, dense_active, dense_total;
};
// Llama-shaped. The dense models differ from the mixture in their MLPs alone: as wide as the experts that a
// token takes, or as all experts together.
MixtureSizes mixture_sizes(bool small);

struct MixtureRun {
  std::string name;
  TransformerConfig model;
  std::vector<double> losses = {}, seconds = {};        // of each step
  std::vector<double> held_out = {}, held_out_at = {};  // losses in nats per byte, each after so many steps
  int64_t flops = 0;                                    // matrix products of one step, as counted
  Usage peak = {};
};

// Forward and backward of all matrix products of a step, B sequences of T tokens: 6 per weight and token that
// it meets, and attention's 12 D per pair of a query and a key. An expert computes all of its places, taken
// or not.
int64_t mixture_flops(const TransformerConfig& c, int64_t B, int64_t T);

std::string measured_text(double x);  // "-" for NaN, what was not measured

// Table (a), the curves, and the checks of sizes and FLOPs.
void compare_runs(const std::vector<MixtureRun>& runs, int64_t batch, const std::string& plot,
                  Report& report);

}  // namespace gradus
