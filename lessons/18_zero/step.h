// A step of sharded training on the device meta: memory, elements sent, and a lower bound of the time.
#pragma once
#include <optional>

#include "src/nn/transformer.h"
#include "src/parallel/comm/network.h"
#include "src/parallel/zero.h"
#include "src/train/machine.h"

namespace gradus {

struct ZeroSetting {
  TransformerConfig model;
  int64_t ranks = 4, micro_batches = 1;
  int64_t sequences = 1, tokens = 64;  // per micro-batch of a rank, and per sequence
  ZeroArgs zero = {};
  Network network = {};
  Machine machine = {};  // without a name: computation takes no time
  int64_t budget = 0;    // bytes per rank; OutOfMemory if they do not suffice
};
struct ZeroStep {
  Usage between, peak;                                // of a rank: after the step, at the peak
  int64_t parameters = 0, padded = 0;                 // of the model, without and with the padding of units
  int64_t reserved = 0, sent = 0, most_gathered = 0;  // sent: elements, in the step
  double seconds = 0;
};
constexpr Kind kStates[] = {Kind::Weight, Kind::Gradient, Kind::Master, Kind::Optimizer};
int64_t state_bytes(const Usage& u);

// With AdamW, on dummy tokens. Returns the step of rank 0, which keeps the most: the padding lies in the
// shards of the last ranks and has no optimizer states.
ZeroStep zero_step(const ZeroSetting& set);

// By the formulas of zero.h, for rank 0 of N: bytes of weights, master copies, gradients and AdamW's states
// (of which the padding has none) between steps; and the elements that a rank sends per step.
Usage predicted_bytes(const Precision& t, int stage, int64_t parameters, int64_t padded, int64_t ranks);
int64_t predicted_sent(const ZeroArgs& args, int64_t padded, int64_t ranks, int64_t micro_batches);

}  // namespace gradus
