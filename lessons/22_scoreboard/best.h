// The best combination of methods for a memory budget: of those that fit, the one with the lowest bound on
// its step time. A run of two steps on meta gives the memory of a combination and, for a machine, the bound.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lessons/22_scoreboard/scoreboard.h"
#include "src/train/machine.h"

namespace gradus {

struct Combination {
  std::string flags;  // without --micro-batches
  int64_t micro_batches = 1;
  std::string text() const { return flags + "--micro-batches=" + std::to_string(micro_batches); }
};
struct Needs {
  int64_t allocated, reserved;  // bytes at the peak, without a budget
  double seconds;               // lower bound of the step time
};

// Evaluates each combination at most once, whatever the budgets are.
class BestCombination {
 public:
  // Combinations of: AdamW in 32 or 8 bits; attention; chunks of the head; checkpointing policy; the numbers
  // of micro-batches that divide the batch; and, if `mixed`, precision. (On a CPU `mixed` is false, because
  // bf16 is much slower there than its bound.)
  BestCombination(const Scoreboard& board, Machine machine, bool mixed = true);

  // The fastest combination that fits into `budget` bytes; none if nothing fits. Branch and bound: more
  // micro-batches never need more memory and never make a step faster. So combinations are tried in the order
  // of their times with one micro-batch, until no later one can be faster than the best one found so far.
  std::optional<Combination> within(int64_t budget);
  // The same result by evaluating all combinations.
  std::optional<Combination> by_brute_force(int64_t budget);

  const Needs& needs(const Combination& c);
  // A budget below `allocated` is too small, and one of at least `reserved` is enough. Between the two a run
  // on meta decides, because the allocator can release cached memory.
  bool fits(const Combination& c, int64_t budget);
  int64_t least_bytes();  // the fewest bytes that a combination reserves
  int64_t measured() const { return int64_t(known_.size()); }
  int64_t combinations() const { return int64_t(flags_.size() * micro_batches_.size()); }

 private:
  const Scoreboard& board_;
  const Machine machine_;
  std::vector<std::string> flags_;
  std::vector<int64_t> micro_batches_;
  std::map<std::string, Needs> known_;
};

// For 20 budgets, from the smallest that fits a combination to the one of the fastest combination: the
// combination that the search finds, compared with the best one of all.
void budgets_table(const Scoreboard& board, const Machine& machine, Report& report);
// over: the number of budgets exceeded; slower: the largest relative difference of the lower bounds.
void check_budgets(int64_t over, double slower, Report& report);
void check_reserved(int64_t reserved, int64_t budget, Report& report);  // bytes of a run within a budget

}  // namespace gradus
