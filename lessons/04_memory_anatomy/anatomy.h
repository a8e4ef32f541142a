// The parts of lesson 04 that take a training step to pieces: bytes per parameter, what each operation saves,
// what each class of operations does.
#pragma once
#include "src/optim/optimizer.h"
#include "src/train/dummy.h"
#include "src/train/lesson.h"

namespace gradus {

// (b) One step with every kernel timed: time, FLOPs and bytes of each class of operations, forward, backward
// and update apart.
void op_classes_table(Transformer& model, AdamW& optimizer, const DummyBatch& batch, Report& report);
void check_passes(int64_t forward, int64_t backward, Report& report);  // the FLOPs of contractions

// (c) Two steps of a small model with each recipe and optimizer: bytes per parameter, the formula's and the
// measured.
void bytes_per_parameter_table(const Lesson& lesson, Report& report);
using MeasuredAndFormula = std::pair<int64_t, int64_t>;  // bytes
void check_parameters(const std::vector<MeasuredAndFormula>& rows, Report& report);

// (d) What the tape of one layer saves, op by op, beside what Megatron-LM saves (Korthikanti et al. 2022,
// sec. 4.1): b = batch, s = sequence, h = channels, a = heads; sbh (34 + 5 a s / h) bytes with 16-bit
// activations.
void saved_activations_table(const Lesson& lesson, Report& report);
// Of a layer, for b sequences as long as the context.
void check_saved(int64_t published, int64_t ours, const TransformerConfig& c, int64_t b, Report& report);

}  // namespace gradus
