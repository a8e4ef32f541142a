// Elementwise operations on a large tensor: as separate kernels, and compiled into one kernel, a chain.
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
  int64_t count;
  std::function<Tensor(Tensor)> ops;
};
struct ElementRun {
  std::string name;
  int64_t count;                        // of operations
  int64_t moved_separate, moved_chain;  // bytes
  double separate = NAN, chain = NAN;   // seconds, medians; NaN on meta
  double in_cache = NAN;                // seconds of the chain for n numbers that are in the cache
  bool equal = true;                    // bitwise
};
// Chains of 2 to 10 multiplications, and one with a gelu, on n random fp32 numbers, and on `in_cache`
// numbers, few enough to stay in the cache.
std::vector<ElementRun> run_elements(const Lesson&, int64_t n, int64_t in_cache, RunTimeCompiler&);
// picture: the file to write, or "".
void report_elements(const std::vector<ElementRun>&, int64_t n, int64_t in_cache, const std::string& picture,
                     Report&);

// Prints the chains of a step, and how many of them were compiled or loaded from the folder.
void report_chains(const FusedChains&, const RunTimeCompiler&);

// Three operations on 8 numbers: numbers moved by each call and by the chain, and the loop of the chain.
void elements_by_hand(std::ostream&);

}  // namespace gradus
