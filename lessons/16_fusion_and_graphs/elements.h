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
  int64_t count;
  std::function<Tensor(Tensor)> ops;
};
struct ElementRun {
  std::string name;
  int64_t count, moved_apart, moved_chain;  // bytes
  double apart = NAN, chain = NAN;          // seconds, medians; NaN on meta
  double in_cache = NAN;  // of the chain on a part that stays in the cache, times the number of parts
  bool equal = true;      // to the bit
};
// 2 to 10 cheap operations, and three with a gelu, on n random fp32 numbers and on so few that they stay in
// the cache.
std::vector<ElementRun> run_elements(const Lesson&, int64_t n, int64_t in_cache, RunTimeCompiler&);
// picture: a file, or "".
void report_elements(const std::vector<ElementRun>&, int64_t n, const std::string& picture, Report&);

// The chains of a step, and where their code comes from.
void report_chains(const FusedChains&, const RunTimeCompiler&);

// Three operations on 8 numbers: what each call moves, what the chain moves, and its loop.
void elements_by_hand(std::ostream&);

}  // namespace gradus
