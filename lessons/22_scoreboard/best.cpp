#include "lessons/22_scoreboard/best.h"

#include <algorithm>

#include "lessons/22_scoreboard/commands.h"

namespace gradus {

static const std::vector<std::vector<std::string>>& choices() {
  static const std::vector<std::vector<std::string>> all{
      {"--precision=fp32", "--precision=mixed"},
      {"--optimizer=adamw", "--optimizer=adamw8bit"},
      {"--attention=plain", "--attention=flash"},
      {"--loss-rows=0", "--loss-rows=128"},
      {"--keep=store-all", "--keep=selective", "--keep=sqrt", "--keep=each-block", "--keep=from-the-start"}};
  return all;
}

BestCombination::BestCombination(const Scoreboard& board, Machine machine)
    : board_(board), machine_(std::move(machine)), flags_{""} {
  for (const std::vector<std::string>& choice : choices()) {
    std::vector<std::string> longer;
    for (const std::string& flags : flags_)
      for (const std::string& flag : choice) longer.push_back(flags + flag + " ");
    flags_ = longer;
  }
  const int64_t batch = board.settings("").batch;
  for (int64_t n = 1; n <= batch; ++n)
    if (batch % n == 0) micro_batches_.push_back(n);
}

const Needs& BestCombination::needs(const Combination& c) {
  const auto at = known_.find(c.text());
  if (at != known_.end()) return at->second;
  const PlannedStep step = plan_step(board_.settings(c.text()), board_.text(), machine_);
  return known_[c.text()] = {step.reserved, step.seconds};
}

std::optional<Combination> BestCombination::within(int64_t budget) {
  std::vector<Combination> order;
  for (const std::string& flags : flags_) order.push_back({flags});
  std::stable_sort(order.begin(), order.end(), [&](const Combination& a, const Combination& b) {
    return needs(a).seconds < needs(b).seconds;
  });
  std::optional<Combination> best;
  for (Combination c : order) {
    if (best && needs(c).seconds >= needs(*best).seconds) break;
    // The fewest micro-batches that fit, by bisection.
    const auto fewest = std::partition_point(micro_batches_.begin(), micro_batches_.end(), [&](int64_t n) {
      c.micro_batches = n;
      return needs(c).bytes > budget;
    });
    if (fewest == micro_batches_.end()) continue;
    c.micro_batches = *fewest;
    if (!best || needs(c).seconds < needs(*best).seconds) best = c;
  }
  return best;
}

std::optional<Combination> BestCombination::by_brute_force(int64_t budget) {
  std::optional<Combination> best;
  for (const std::string& flags : flags_)
    for (const int64_t n : micro_batches_) {
      const Combination c{flags, n};
      if (needs(c).bytes <= budget && (!best || needs(c).seconds < needs(*best).seconds)) best = c;
    }
  return best;
}

}  // namespace gradus
