// What the strategies that share a model out have in common: a parameter gets memory for this rank's part of
// it, or for the whole.
#pragma once
#include "src/nn/transformer.h"
#include "src/parallel/comm/comm.h"

namespace gradus {

// An error of `strategy` if ranks share the model out already, or if a layer computes something else than its
// product: it would be lost.
void check_whole_model(const char* strategy, Transformer& model);

// Of `groups` equal parts of the rows (the first dimension) the rows `rows` each.
void keep_rows(Parameter& p, const Part& rows, int64_t groups, Allocate when);
void keep_columns(Parameter& p, const Part& columns, Allocate when);
void keep_whole(Parameter& p, Allocate when);

// For Transformer::initialize and files: of a parameter's values those that this rank keeps.
void assign_part(Parameter& p, const std::vector<double>& values);

}  // namespace gradus
