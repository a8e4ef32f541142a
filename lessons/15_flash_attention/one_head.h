// Three programs that compute one head of attention: softmax in two passes, online softmax, and tiles. All
// three load a group of queries, then every key and value once for this group, and compute the same y. They
// differ in where the scores are stored. (Forward pass only, without a mask.)
#pragma once
#include <cmath>
#include <cstdint>
#include <ostream>
#include <vector>

#include "src/train/report.h"

namespace gradus {

struct Head {
  int64_t T, D;
  std::vector<float> q, k, v;  // (T, D)
  static Head random(int64_t T, int64_t D, uint64_t seed);
};

// The large memory with q, k, v, y and the stored scores. It counts loads and stores. Numbers on chip are
// local variables; they are not counted.
struct Memory {
  int64_t loads = 0, stores = 0;  // of numbers
  float load(const std::vector<float>& x, int64_t i) { return ++loads, x[size_t(i)]; }
  void store(std::vector<float>& x, int64_t i, float value) { ++stores, x[size_t(i)] = value; }
};

// A softmax of the scores so far. The weight of score x is e^(x - max) / sum if no more scores follow.
struct Softmax {
  float max = -INFINITY, sum = 0;  // sum of e^(x - max)

  // Adds score x: updates the maximum, and the sum as if the new maximum had been used from the beginning
  // (Milakov & Gimelshein 2018, "Online normalizer calculation for softmax", algorithm 3).
  void add(float x);
};

// y = softmax(q k^T / sqrt(D)) v, of shape (T, D), for groups of `rows` queries.
enum class Program : uint8_t {
  TwoPasses,  // stores the scores; loads them for the maximum, for the sum, and for y
  Online,     // calls Softmax::add when it computes a score; stores the scores; loads them for y
  Tiles       // adds kTileKeys scores at a time to y on chip; stores no scores (Dao 2023, algorithm 1)
};
constexpr int64_t kTileKeys = 32;
std::vector<float> attend(Program, const Head&, int64_t rows, Memory&);

int64_t predicted_loads(Program, int64_t T, int64_t D, int64_t rows);
int64_t predicted_stores(Program, int64_t T, int64_t D);

struct ProgramRun {
  Program program;
  int64_t rows, scores;  // queries per group; scores that exist at the same time
  Memory memory = {};
  double difference = 0;  // largest difference of y from the first program
};
constexpr int64_t kHeadTokens = 256, kHeadDims = 64;
std::vector<ProgramRun> run_programs(uint64_t seed);
void report_programs(const std::vector<ProgramRun>&, Report&);

void online_softmax_by_hand(std::ostream&);  // --print=example

}  // namespace gradus
