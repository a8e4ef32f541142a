// The best combination of methods for a budget of memory: the fastest, by what each needs on meta and what
// its kernels take on a machine at least.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lessons/22_scoreboard/scoreboard.h"
#include "src/train/machine.h"

namespace gradus {

struct Combination {
  std::string flags;  // but for the number of micro-batches
  int64_t micro_batches = 1;
  std::string text() const { return flags + "--micro-batches=" + std::to_string(micro_batches); }
};
struct Needs {
  int64_t allocated, reserved;  // bytes at the peak, if there is no budget
  double seconds;               // of a step, at least
};

// All that it measures it remembers, for other budgets.
class BestCombination {
 public:
  // Choices: precision, if `mixed`, because a CPU computes in bf16 slower than its bound says; AdamW in 32 or
  // 8 bits; attention; rows of the head; what the tape keeps; the numbers of micro-batches that divide the
  // batch.
  BestCombination(const Scoreboard& board, Machine machine, bool mixed = true);

  // The fastest that fits into `budget` bytes; none: nothing fits. Branch and bound: more micro-batches
  // need no more memory, and take no less time, than fewer; so combinations are tried in the order of their
  // times with one micro-batch, until no further one can be faster than what was found.
  std::optional<Combination> within(int64_t budget);
  // The same by measuring all combinations.
  std::optional<Combination> by_brute_force(int64_t budget);

  const Needs& needs(const Combination& c);
  // With less than `allocated` it does not fit. With less than `reserved` it may: then it is tried, because
  // the allocator gives back what it only keeps.
  bool fits(const Combination& c, int64_t budget);
  int64_t least_bytes();  // that any combination reserves
  int64_t measured() const { return int64_t(known_.size()); }
  int64_t combinations() const { return int64_t(flags_.size() * micro_batches_.size()); }

 private:
  const Scoreboard& board_;
  const Machine machine_;
  std::vector<std::string> flags_;
  std::vector<int64_t> micro_batches_;
  std::map<std::string, Needs> known_;
};

// 20 budgets between the least that a combination needs and what the fastest needs: what the search finds,
// beside the best of all.
void budgets_table(const Scoreboard& board, const Machine& machine, Report& report);
// The best combination within `budget` on the current device, and `steps` steps of it.
void run_best(const Scoreboard& board, int64_t budget, int64_t steps, Report& report);

}  // namespace gradus
