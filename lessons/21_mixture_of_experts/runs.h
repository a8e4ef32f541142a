// The three models that are compared, and the results of their training.
#pragma once
#include "src/data/loader.h"
#include "src/nn/transformer.h"
#include "src/train/report.h"

namespace gradus {

struct MixtureSizes {
  TransformerConfig mixture, dense_active, dense_total;
};
// Llama-shaped models. The dense models differ from the mixture only in their MLP, which is as wide as the
// experts of one token together, or as all experts together.
MixtureSizes mixture_sizes(bool small);

struct MixtureRun {
  std::string name;
  TransformerConfig model;
  std::vector<double> losses = {}, seconds = {};        // per step
  std::vector<double> held_out = {}, held_out_at = {};  // nats per byte; after how many steps
  int64_t flops = 0;                                    // of the matrix products of one step, counted
  Usage peak = {};
};

// FLOPs of all matrix products of a step, forward and backward, for B sequences of T tokens: 6 per weight and
// row that it is multiplied by, and in attention 12 D per pair of a query and a key. An expert computes a row
// per place, also for empty places.
int64_t mixture_flops(const TransformerConfig& c, int64_t B, int64_t T);

std::string measured_text(double x);  // "-" for NaN, which stands for "not measured"

// Prints table (a), draws the losses, and checks FLOPs and held-out losses.
void compare_runs(const std::vector<MixtureRun>& runs, int64_t batch, const std::string& plot,
                  Report& report);

}  // namespace gradus
