// A run on several ranks, saved and loaded: one file, the very one that save_training writes of a model that
// is whole. So it goes on with any number of ranks, in any layout, or on one device without ranks. Of each
// parameter a rank has a part (Parameter::shard) or a copy; both are found out by asking all ranks. What is
// not counted (Parameter::counted) is loaded, and saved by the rank that counts it.
#pragma once
#include "src/io/save_load.h"
#include "src/parallel/comm/comm.h"

namespace gradus {

// All ranks of `comm` call this together, with their own parameters and the optimizer of all of these. Rank 0
// gathers the whole in the host's memory, and writes the file, which is replaced as a whole or not at all.
// Returns when it is there. Refused on all ranks: parameters of which no rank, or two, have an element, or
// whose shape or dtype is not the same on all.
void save_sharded(const std::string& path, Comm& comm, const Parameters& own, const Optimizer& optimizer,
                  const Metadata& metadata = {});
// Every rank reads its part. The names, dtypes and shapes of all, and where parts begin, are checked before
// anything changes.
Metadata load_sharded(const std::string& path, Comm& comm, Parameters& own, Optimizer& optimizer);

}  // namespace gradus
