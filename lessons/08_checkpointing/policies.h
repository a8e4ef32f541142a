// Policies: which tensors of a transformer's blocks are saved for backward. Formulas for bytes and FLOPs.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/nn/transformer.h"
#include "src/train/report.h"

namespace gradus {

struct Policy {
  std::string name;
  std::vector<BlockSegment> segments;
  bool from_the_start = false;
  void apply(Transformer& model) const { model.segments = segments, model.from_the_start = from_the_start; }
};

// Checkpointed segments of k blocks; the last one is shorter if k does not divide L.
std::vector<BlockSegment> every(int64_t k, int64_t L);
// store-all, selective, each-block, every-2, sqrt, from-the-start; by name also every-K.
std::vector<Policy> policies(int64_t L);
Policy policy_by_name(const std::string& name, int64_t L);

// A batch of B sequences of T tokens, and GPT-2's blocks with attention_plain.
struct Sizes {
  const TransformerConfig& config;
  int64_t B, T;
  int64_t input() const;          // bytes of a block's input
  int64_t all() const;            // bytes that a block saves, its input included
  int64_t probs() const;          // bytes of a block's attention probabilities
  int64_t tail() const;           // bytes that the operations after the blocks save
  int64_t forward_flops() const;  // of a block's forward pass
  int64_t tail_flops() const;     // of a block's last operations, whose results are not saved
  int64_t attention_flops() const;
};
// Bytes that a segment saves, and the largest number of its bytes that are alive at the same time.
int64_t kept(const BlockSegment& g, const Sizes& s);
int64_t most_within(const BlockSegment& g, const Sizes& s);

int64_t saved_bytes(const Policy& p, const Sizes& s);       // after the forward pass
int64_t peak_activations(const Policy& p, const Sizes& s);  // the largest number at any time

// Costs of recomputation, per block.
struct Costs {
  double block, tail, attention;  // tail: of a block's last operations, whose results are not saved
};
Costs costs_in_flops(const Sizes& s);
double cost_of(const BlockSegment& g, const Costs& c);  // of the recomputation of one segment, in any unit
using CostOf = std::function<double(const BlockSegment&)>;
CostOf flops_of(const Sizes& s);
double extra_cost(const Policy& p, const CostOf& cost, int64_t layers);  // of all recomputation in a step

// Counts of a forward and a backward pass on meta.
struct Counted {
  int64_t saved, most, flops;  // bytes of activations after the forward pass, and at the peak; FLOPs
};
Counted count_on_meta(const TransformerConfig& config, int64_t batch, const Policy& p);
void print_tape(std::ostream& out, const TransformerConfig& config, int64_t batch, const Policy& p);
// The peak of kind activation in a history of allocations, in bytes.
int64_t most_activations(const std::vector<MemoryEvent>& history);

std::string text_of(const Policy& p);  // "2 store-all, 3 selective, [4]": [4] is a checkpointed segment of 4
int64_t differing_values(const std::vector<double>& a, const std::vector<double>& b);  // bitwise

// Results of training with a policy.
struct PolicyRun {
  Counted counted;
  std::vector<double> losses, gradients;  // of all steps; of all parameters, in the last step
};
// Checks bytes, recomputed FLOPs, and that losses and gradients are bitwise equal to those of `first`, unless
// `skip` gives a reason not to compare them.
void check_policy(const Policy& p, const PolicyRun& run, int64_t recomputed_flops, const PolicyRun& first,
                  const Sizes& s, const std::string& skip, Report& report);

}  // namespace gradus
