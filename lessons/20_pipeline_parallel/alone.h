// A single-device run that adds numbers in the order of the ranks of a layout; both must be bitwise equal.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "src/parallel/layout.h"
#include "src/parallel/shards.h"

namespace gradus {

struct LayoutReference {
  std::map<std::string, std::vector<double>> weights;  // after the last step
  std::vector<double> losses;
};
// Trains with AdamW. Each replica (data or context rank) has its own gradient buffers: micro-batches are
// added in order, then buffers in rank order. With a pipeline, the head has its own gradient of a tied
// embedding. Partial products and blocks of attention are added as in lesson 19.
LayoutReference train_as(const Layout& layout, const Loader& loader, const ParallelTask& task,
                         int64_t micro_batches);

}  // namespace gradus
