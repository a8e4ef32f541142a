// What one layer keeps for backward and sends: by formula, and as the difference of two models on meta.
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
  bool selective = false;  // attention's probabilities are made again in backward (lesson 08)
};
struct LayerUse {
  int64_t bytes = 0, elements = 0, messages = 0;  // kept on a rank; sent by it, forward and backward
};
LayerUse measure_layer(const LayerSetting& set);

// Korthikanti et al. 2023, table 2: bytes of 16-bit activations a layer, with the masks of dropout.
int64_t published_bytes(const LayerSetting& set);
// What of them the tape here does not keep (masks, which are drawn again, and the probabilities after
// dropout), less what it keeps beside (two statistics for each token and norm, in fp32).
int64_t not_kept_here(const LayerSetting& set);
int64_t predicted_elements(const LayerSetting& set);

// The 22B model of that paper on 8 ranks: (a) in the report, checked, and a picture.
void layer_table(const std::string& picture, Report& report);
// A product of two layers on two ranks, small enough for a pencil (--print=example).
void layers_by_hand(std::ostream& out);

}  // namespace gradus
