// Shared by the tests of a mixture of experts: shapes, and the choices and places of tokens, by algorithms
// that differ from those of the kernels.
#pragma once
#include <numeric>

#include "tests/kernels/kernel_contract.h"

namespace gradus {

using Ids = SharedVector<int32_t>;
inline CBuf in(const Ids& ids) { return {ids.data(), DType::I32}; }

// An int32 output, with memory around it that must not change.
class IdsOut {
 public:
  explicit IdsOut(int64_t n) : ids_(n + 2, kGuard) {}
  Out out() { return {ids_.data() + 1, DType::I32, Write::Set}; }
  Out none() { return {nullptr, DType::I32, Write::Set}; }
  bool untouched() const {
    wait_for_kernels();
    return std::all_of(ids_.begin(), ids_.end(), [](int32_t id) { return id == kGuard; });
  }
  std::vector<int32_t> values() const {
    wait_for_kernels();
    EXPECT_TRUE(ids_.front() == kGuard && ids_.back() == kGuard) << "something was written before or after";
    numbers_seen.insert(numbers_seen.end(), ids_.begin(), ids_.end());
    return {ids_.begin() + 1, ids_.end() - 1};
  }

 private:
  static constexpr int32_t kGuard = 0x5A5A'5A5A;
  Ids ids_;
};

// E and chosen just below and above a warp (32), tokens just below and above a block's warps (8) and a warp,
// chosen = 1 and chosen = E, capacity 0 and capacity = T, one expert, no tokens.
inline std::vector<ExpertShape> expert_shapes() {
  std::vector<ExpertShape> shapes{{0, 3, 4, 2, 2},    {2, 0, 3, 1, 0},   {1, 1, 1, 1, 1},
                                  {2, 1, 1, 1, 0},    {2, 7, 3, 2, 3},   {3, 7, 8, 2, 7},
                                  {1, 9, 7, 7, 5},    {1, 31, 33, 3, 4}, {2, 33, 32, 31, 9},
                                  {1, 32, 40, 33, 3}, {1, 5, 257, 2, 1}, {1, 257, 5, 1, 70}};
  if (turn.table == &cpu_backend()) shapes.insert(shapes.end(), {{3, 255, 8, 2, 64}, {7, 411, 16, 2, 52}});
  return shapes;
}
inline std::string text(const ExpertShape& s) {
  std::string text;
  for (const int64_t size : {s.B, s.T, s.E, s.chosen, s.capacity}) text += std::to_string(size) + " ";
  return text;
}

// The choices of each token, by a stable sort of all experts, NaN first.
inline Ids chosen_by(const ExpertShape& s, const std::vector<double>& logits) {
  Ids chosen;
  for (int64_t t = 0; t < s.tokens(); ++t) {
    std::vector<int32_t> experts(s.E);
    std::iota(experts.begin(), experts.end(), 0);
    std::stable_sort(experts.begin(), experts.end(), [&](int32_t a, int32_t b) {
      const double x = logits[t * s.E + a], y = logits[t * s.E + b];
      return std::isnan(x) ? !std::isnan(y) : x > y;
    });
    chosen.insert(chosen.end(), experts.begin(), experts.begin() + s.chosen);
  }
  return chosen;
}
// Distinct experts for each token; `skewed`: the first experts get more than their share.
inline Ids some_experts(const ExpertShape& s, uint64_t stream, bool skewed = false) {
  std::vector<double> logits = Buffer::random(DType::F64, s.tokens() * s.E, stream).values();
  for (size_t i = 0; skewed && i < logits.size(); ++i) logits[i] -= 3 * double(int64_t(i) % s.E);
  return chosen_by(s, logits);
}

struct Places {
  Ids slots, tokens;
};
// A choice's place is the number of earlier choices of the same expert in its sequence.
inline Places places_of(const ExpertShape& s, const Ids& experts) {
  Places places{Ids(s.choices(), kElsewhere), Ids(s.places(), kElsewhere)};
  for (int64_t b = 0; b < s.B; ++b) {
    const auto first = experts.begin() + b * s.T * s.chosen;
    for (int64_t i = 0; i < s.T * s.chosen; ++i) {
      const int64_t before = std::count(first, first + i, first[i]);
      if (before >= s.capacity) continue;
      const int64_t slot = (first[i] * s.B + b) * s.capacity + before;
      places.slots[b * s.T * s.chosen + i] = int32_t(slot);
      places.tokens[slot] = int32_t(b * s.T + i / s.chosen);
    }
  }
  return places;
}

}  // namespace gradus
