// The ways in which lesson 07 divides a batch into micro-batches, and the run of each.
#pragma once
#include <optional>
#include <string>

#include "src/io/memory_files.h"
#include "src/train/accumulate.h"
#include "src/train/step_recorder.h"

namespace gradus {

struct Way {
  std::string name;
  Split split;
  bool ragged;      // the sequences have different lengths
  bool in_picture;  // the memory of the last step is a panel of the figure
};
std::vector<Way> ways(int64_t batch);

struct Run {
  std::vector<std::vector<double>> first_gradient;  // of each parameter, in the first step
  StepRecorder recorder;
  Accumulated last;         // of the last step
  int64_t flops;            // of the matrix products of a step
  MemoryPanel memory = {};  // of the last step, if the way is in the picture
};
double distance(const std::vector<double>& a, const std::vector<double>& b);  // |a - b| / |b|
// The largest distance of a parameter's first gradient in `a` from that in `b`. NaN if a distance is NaN, or
// if a run has no gradients.
double worst_distance(const Run& a, const Run& b);

// The bytes that a tape saves for `sequences` sequences, and the FLOPs of the matrix products in their
// forward and backward passes: 6 per token and weight of a matrix, and those of causal attention.
int64_t predicted_bytes(const TransformerConfig& config, int64_t sequences);
int64_t predicted_flops(const TransformerConfig& config, int64_t sequences);

// The checks of a run with `batch` sequences. A run in micro-batches is also compared with that of the whole
// batch.
void check_way(const Way& way, const Run& run, const TransformerConfig& config, int64_t batch,
               const std::optional<Run>& whole, Report& report);

}  // namespace gradus
