// The ways in which lesson 07 works through one batch, and what came of each.
#pragma once
#include <optional>
#include <string>

#include "src/train/accumulate.h"
#include "src/train/step_recorder.h"

namespace gradus {

struct Way {
  std::string name;
  Split split;
  bool ragged;          // sequences have other numbers of targets that count, micro-batches of sequences
  std::string picture;  // of the last step's memory
};
std::vector<Way> ways(int64_t batch);

struct Run {
  std::vector<std::vector<double>> first_gradient;  // of each parameter, in the first step
  StepRecorder recorder;
  Accumulated last;  // of the last step
  int64_t flops;     // of the products of a step
};
double distance(const std::vector<double>& a, const std::vector<double>& b);  // |a - b| / |b|
// The largest distance of a parameter's first gradients; NaN if one is, or if there is none.
double worst_distance(const Run& a, const Run& b);

// What a tape saves of so many sequences, and the FLOPs of the products in their forward and backward passes:
// 6 for each weight of a matrix and token, and those of causal attention.
int64_t predicted_bytes(const TransformerConfig& config, int64_t sequences);
int64_t predicted_flops(const TransformerConfig& config, int64_t sequences);

// The checks of a run of `batch` sequences, if it is in micro-batches also beside that of the whole batch.
void check_way(const Way& way, const Run& run, const TransformerConfig& config, int64_t batch,
               const std::optional<Run>& whole, Report& report);

}  // namespace gradus
