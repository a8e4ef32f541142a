// A step of sharded training on the device meta: what it needs, sends and takes at least.
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
  int64_t sequences = 1, tokens = 64;  // of a micro-batch of one rank
  ZeroArgs zero = {};
  Network network = {};
  Machine machine = {};  // without a name: computing takes no time
  int64_t budget = 0;    // bytes of a rank; OutOfMemory if it does not do
};
struct ZeroStep {
  Usage between, peak;                                // of a rank: after the step, and at its peak
  int64_t parameters = 0, padded = 0;                 // of the model, and with what fills the units up
  int64_t reserved = 0, sent = 0, most_gathered = 0;  // sent: elements, in the step
  double seconds = 0;
};
constexpr Kind kStates[] = {Kind::Weight, Kind::Gradient, Kind::Master, Kind::Optimizer};
int64_t state_bytes(const Usage& u);

// With AdamW, on dummy tokens; of rank 0, which has the most: what fills the units up is in the last ranks'
// parts, and has no states there.
ZeroStep zero_step(const ZeroSetting& set);

// By the formulas of zero.h, for rank 0 of N: bytes of weights, master copies, gradients and AdamW's states
// (which the padding does not have) between steps; and the elements that a rank sends in a step.
Usage predicted_bytes(const Precision& t, int stage, int64_t parameters, int64_t padded, int64_t ranks);
int64_t predicted_sent(const ZeroArgs& args, int64_t padded, int64_t ranks, int64_t micro_batches);

}  // namespace gradus
