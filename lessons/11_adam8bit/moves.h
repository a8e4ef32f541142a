// How far single updates move single weights, in learning rates. With fp32 states this is about 1.
#pragma once
#include "lessons/11_adam8bit/contenders.h"
#include "src/train/accumulate.h"

namespace gradus {

// How far update n + 1 moves a weight whose gradient is 0, if its states after n updates are m and v.
double move_without_gradient(double m, double v, int64_t n, const AdamWArgs& args);

struct Moved {
  std::string name;
  std::vector<double> losses;
  double largest = 0;        // over all weights and updates, in learning rates
  int64_t far = 0, all = 0;  // moves above 8 learning rates; all moves
  // The largest move_without_gradient of all weights, after each of the first 10 updates.
  double largest_next = 0;
  void add(const std::vector<float>& before, const std::vector<float>& after, double learning_rate);
};

// Tokens below `vocab`, sampled with (seed, step): token k has 1/k of the probability of the first (Zipf's
// law), so most tokens are rare. With probability 1/2 a token is a function of the token before it.
TextBatch zipf_batch(int64_t sequences, int64_t T, int64_t vocab, uint64_t seed, int64_t step);

// Trains a model with an untied output head on such tokens, with a constant learning rate: with AdamW in
// fp32, with 8-bit states (nearest codes; v rounded up), and with AdamW8bit. Measures the tensors whose
// states are in 8 bits.
std::vector<Moved> moves_of_all(const Lesson& lesson, const RunSetting& setting, int64_t steps);

void moves_table(const std::vector<Moved>& all, Report& report);

}  // namespace gradus
