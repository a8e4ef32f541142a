// How far an update moves a weight, in learning rates. AdamW moves one by about 1.
#pragma once
#include "lessons/11_adam8bit/contenders.h"
#include "src/train/accumulate.h"

namespace gradus {

// How far update n + 1 moves a weight whose gradient is 0, if n updates left it m and v.
double move_without_gradient(double m, double v, int64_t n, const AdamWArgs& args);

struct Moved {
  std::string name;
  std::vector<double> losses;
  double largest = 0;        // of all weights and updates, in learning rates
  int64_t far = 0, all = 0;  // moves above 8 learning rates, and how many there were
  double largest_next =
      0;  // the largest move_without_gradient of any weight, after each of the first 10 updates
  void add(const std::vector<float>& before, const std::vector<float>& after, double learning_rate);
};

// Tokens of which the k-th is drawn 1/k as often as the first (Zipf's law); every second one follows from the
// token before it. So most are rare. Those of (seed, step), below `vocab`.
TextBatch zipf_batch(int64_t sequences, int64_t T, int64_t vocab, uint64_t seed, int64_t step);

// A model of such tokens, whose output head is not the token embedding (untied): by AdamW in fp32, by its
// 8-bit states with the nearest codes and with v rounded up, and by AdamW8bit. The learning
// rate is constant. Tensors that stay in fp32 do not count.
std::vector<Moved> moves_of_all(const Lesson& lesson, const RunSetting& setting, int64_t steps);

void moves_table(const std::vector<Moved>& all, Report& report);

}  // namespace gradus
