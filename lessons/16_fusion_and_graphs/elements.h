// Operations on each element of a large tensor: each as a kernel of its own, and compiled as one chain.
#pragma once
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "src/ops/ops.h"
#include "src/train/chains.h"
#include "src/train/lesson.h"

namespace gradus {

struct ElementOps {
  std::string name;
  std::function<Tensor(Tensor)> ops;
};
std::vector<ElementOps> element_ops();

struct ElementRun {
  std::string name, code;                    // what the chain was compiled from
  int64_t moved_apart = 0, moved_chain = 0;  // bytes
  double apart = NAN, chain = NAN;           // seconds, medians; NaN on meta
  double in_cache = NAN;                     // of the chain, on a tensor that is in the cache: its arithmetic
  bool equal = true;                         // to the bit
};
// Of ops on n fp32 numbers, and of the chain on so few that they stay in the cache, as often.
ElementRun run_elements(const Lesson&, const ElementOps&, int64_t n, int64_t in_cache, RunTimeCompiler&);
void report_elements(const std::vector<ElementRun>&, int64_t n, Report&);

}  // namespace gradus
