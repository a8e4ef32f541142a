// Common functions of the strategies that divide a model among ranks: a parameter gets memory for this rank's
// part of it, or for the whole.
#pragma once
#include "src/nn/transformer.h"
#include "src/parallel/comm/comm.h"

namespace gradus {

// An error that names `strategy` if the model is divided already, or if a layer has a variant (such as an
// adapter), which would be lost.
void check_whole_model(const char* strategy, Transformer& model);

// Keeps the rows `rows` of each of `groups` equal parts of the rows (the first dimension).
void keep_rows(Parameter& p, const Part& rows, int64_t groups, Allocate when);
void keep_columns(Parameter& p, const Part& columns, Allocate when);
void keep_whole(Parameter& p, Allocate when);

// For Transformer::initialize and files: assigns those of the values that this rank keeps.
void assign_part(Parameter& p, const std::vector<double>& values);

}  // namespace gradus
