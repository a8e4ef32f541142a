// One device that adds as the ranks of a layout do: what they must equal to the bit.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "src/parallel/layout.h"
#include "src/parallel/shards.h"

namespace gradus {

struct LayoutReference {
  std::map<std::string, std::vector<double>> weights;  // in the end
  std::vector<double> losses;
};
// The same training with AdamW. Each replica (data and context ranks) has its own buffer of gradients, in
// which micro-batches are added in order; the buffers are added in rank order. With a pipeline, the head has
// its own buffer for the gradient of a tied embedding. Partial products and blocks of attention: as in
// lesson 19.
LayoutReference train_as(const Layout& layout, const Loader& loader, const ParallelTask& task,
                         int64_t micro_batches);

}  // namespace gradus
