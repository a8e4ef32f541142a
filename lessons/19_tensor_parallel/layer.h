// Tables (a), the bytes that one layer saves and the elements that it sends: by formula, and measured on
// meta; and (b), the ring of context parallelism.
#pragma once
#include <ostream>
#include <string>
#include <vector>

#include "src/parallel/tensor_parallel.h"
#include "src/train/report.h"

namespace gradus {

struct LayerSetting {
  int64_t b, s, h, a;  // sequences, tokens, channels, heads
  int64_t t = 1;       // ranks
  Sequence sequence = Sequence::Whole;
  bool selective = false;  // attention probabilities are recomputed in backward (lesson 08)
};
struct LayerUse {
  int64_t bytes = 0, elements = 0, messages = 0;  // per rank; sent: in both passes
};
LayerUse measure_layer(const LayerSetting& set);  // a model of two layers minus a model of one layer

// Korthikanti et al. 2023, table 2: bytes of 16-bit activations per layer, with dropout masks.
int64_t published_bytes(const LayerSetting& set);
// The published bytes that gradus does not save (dropout masks and the probabilities after dropout, which it
// recomputes), minus bytes that only gradus saves (two fp32 statistics per token and norm).
int64_t not_saved_here(const LayerSetting& set);
int64_t predicted_elements(const LayerSetting& set);

// Prints and checks table (a), the 22B model of that paper on 8 ranks, and draws the picture.
void layer_table(const std::string& picture, Report& report,
                 LayerUse (*measure)(const LayerSetting&) = measure_layer);
// Prints and checks table (b): pairs of query and key of each rank at each step, and elements sent by a rank.
void ring_table(Report& report);
void check_ring(const std::vector<std::vector<int64_t>>& pairs, int64_t sent,
                Report& report);  // [step][rank]
// The example by hand: two layers on two ranks (--print=example).
void layers_by_hand(std::ostream& out);

}  // namespace gradus
