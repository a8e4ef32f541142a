// Saves and loads a run on several ranks as one file, the same that save_training writes for a whole model.
// So the run can go on with any number of ranks, in any layout, or on one device without ranks. A rank has a
// part (Parameter::shard) or a copy of each parameter; the ranks tell each other which. A parameter that a
// rank does not count (Parameter::counted) is saved by the rank that counts it, but loaded by both.
#pragma once
#include "src/io/save_load.h"
#include "src/parallel/comm/comm.h"

namespace gradus {

// All ranks of `comm` call this together, with their own parameters and one optimizer for all of these. Rank
// 0 gathers the whole tensors in host memory and writes the file, which is replaced as a whole or not at all.
// Returns when the file exists. An error on all ranks: an element of a parameter is on no rank or on two, or
// a shape or dtype differs between ranks.
void save_sharded(const std::string& path, Comm& comm, const Parameters& own, const Optimizer& optimizer,
                  const Metadata& metadata = {});
// Every rank reads its part. All names, dtypes and shapes, and the bounds of parts, are checked before
// anything changes.
Metadata load_sharded(const std::string& path, Comm& comm, Parameters& own, Optimizer& optimizer);

}  // namespace gradus
