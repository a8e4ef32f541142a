// The tables of lesson 04 that divide one training step into parts: bytes per parameter, the tensors that
// each operation saves for backward, and the work of each class of operations.
#pragma once
#include "src/optim/optimizer.h"
#include "src/train/dummy.h"
#include "src/train/lesson.h"

namespace gradus {

// (b) One step in which every kernel is timed: time, FLOPs and bytes moved by each class of operations, for
// the forward pass, the backward pass and the update.
void op_classes_table(Transformer& model, AdamW& optimizer, const DummyBatch& batch, Report& report);
// The FLOPs of contractions in two passes, and the share of contractions in the time.
void check_passes(int64_t forward, int64_t backward, double share_of_time, Report& report);

// (c) Two steps of a small model for each recipe and optimizer: measured bytes per parameter, compared with
// the formula.
void bytes_per_parameter_table(const Lesson& lesson, Report& report);
using MeasuredAndFormula = std::pair<int64_t, int64_t>;  // bytes
void check_parameters(const std::vector<MeasuredAndFormula>& rows, Report& report);

// (d) The bytes that the tape saves for backward in one transformer block, operation by operation, compared
// with those of Megatron-LM (Korthikanti et al. 2022, sec. 4.1): sbh (34 + 5 a s / h) bytes with 16-bit
// activations, where b = batch, s = tokens per sequence, h = channels, a = heads.
void saved_activations_table(const Lesson& lesson, Report& report);
// Checks the bytes of one block, for b sequences that are as long as the context.
void check_saved(int64_t published, int64_t ours, const TransformerConfig& c, int64_t b, Report& report);

}  // namespace gradus
