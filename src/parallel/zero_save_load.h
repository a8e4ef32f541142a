// Sharded training, saved and loaded: one file, the very one that save_training writes of a model that is
// whole. So a run goes on with any number of ranks, in any stage, or on one device without ranks. An
// optimizer of some of the shards is refused.
#pragma once
#include "src/io/save_load.h"
#include "src/parallel/zero.h"

namespace gradus {

// All ranks call this together; rank 0 gathers all that the others own, a tensor at a time, in the host's
// memory, and writes the file, which is replaced as a whole or not at all. Returns when it is there.
void save_sharded(const std::string& path, Comm& comm, Zero& zero, const Optimizer& optimizer,
                  const Metadata& metadata = {});
// Every rank reads its part. The names, dtypes and shapes of all, and where parts begin, are checked before
// anything changes.
Metadata load_sharded(const std::string& path, Zero& zero, Optimizer& optimizer);

}  // namespace gradus
