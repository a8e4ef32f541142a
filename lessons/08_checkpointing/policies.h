// What the tape may keep of a transformer's blocks, and what that costs: bytes and operations, as formulas.
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

// Segments of k blocks, of which the last has fewer if k does not divide L.
std::vector<BlockSegment> every(int64_t k, int64_t L);
// store-all, each-block, every-2, sqrt, selective, from-the-start; by name also every-K.
std::vector<Policy> policies(int64_t L);
Policy policy_by_name(const std::string& name, int64_t L);

// Of B sequences of T tokens. GPT-2's blocks, attention_plain.
struct Sizes {
  const TransformerConfig& config;
  int64_t B, T;
  int64_t input() const;          // bytes of a block's input
  int64_t all() const;            // ... of all that it saves
  int64_t probs() const;          // ... of its attention probabilities
  int64_t tail() const;           // ... of what is saved behind the blocks
  int64_t forward_flops() const;  // of a block
  int64_t tail_flops() const;     // of its last operations, which save nothing that they make
  int64_t attention_flops() const;
};
// Of one segment: bytes that it keeps, and bytes alive at most in its forward and backward pass.
int64_t kept(const BlockSegment& g, const Sizes& s);
int64_t most_within(const BlockSegment& g, const Sizes& s);

int64_t saved_bytes(const Policy& p, const Sizes& s);       // after the forward pass
int64_t peak_activations(const Policy& p, const Sizes& s);  // the most at any time

// What one block costs to run again.
struct Costs {
  double block, tail, attention;  // tail: of its last operations, which make nothing that is saved
};
Costs costs_in_flops(const Sizes& s);
double cost_of(const BlockSegment& g, const Costs& c);  // of what runs again of one segment
// The same for some costs, in FLOPs, seconds or whatever is to be little.
using CostOf = std::function<double(const BlockSegment&)>;
CostOf flops_of(const Sizes& s);
double extra_cost(const Policy& p, const CostOf& cost, int64_t layers);  // of what runs again in a step

// A forward and a backward pass, on meta.
struct Counted {
  int64_t saved, most, flops;  // bytes of activations: after the forward pass, at any time
};
Counted count_on_meta(const TransformerConfig& config, int64_t batch, const Policy& p);
void print_tape(std::ostream& out, const TransformerConfig& config, int64_t batch, const Policy& p);
// Of a whole history: the most bytes of kind activation.
int64_t most_activations(const std::vector<MemoryEvent>& history);

std::string text_of(const Policy& p);  // "2 all, 3 less attention, [4]": [4] is a segment of four
int64_t other_bits(const std::vector<double>& a, const std::vector<double>& b);  // how many numbers differ

// What training gave with a policy.
struct PolicyRun {
  Counted counted;
  std::vector<double> losses, gradients;  // of all steps; of all parameters, in the last step
};
// Its checks: of the bytes, of the FLOPs that run again, and of its numbers, which are the first run's to the
// bit; `skip`: why these are not compared.
void check_policy(const Policy& p, const PolicyRun& run, int64_t flops_again, const PolicyRun& first,
                  const Sizes& s, const std::string& skip, Report& report);

}  // namespace gradus
