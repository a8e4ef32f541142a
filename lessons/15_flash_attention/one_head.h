// One head of attention in three programs: softmax in two passes, online softmax, and tiles. All three hold
// some queries on chip, load every key and value once for them, and compute the same; they differ in what
// becomes of the scores. (No mask; backward is not here.)
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

// The large memory, in which q, k, v, y and stored scores are. What a program holds on chip is not counted.
struct Memory {
  int64_t loads = 0, stores = 0;  // of numbers
  float load(const std::vector<float>& x, int64_t i) { return ++loads, x[size_t(i)]; }
  void store(std::vector<float>& x, int64_t i, float value) { ++stores, x[size_t(i)] = value; }
};

// What is known of a softmax after some of its numbers: e^(x - max) / sum is the weight of each, if there are
// no others.
struct Softmax {
  float max = -INFINITY, sum = 0;  // sum of e^(x - max)

  // One more number: the new maximum, and the sum as if it had been the maximum from the beginning
  // (Milakov & Gimelshein 2018, "Online normalizer calculation for softmax", algorithm 3).
  void add(float x);
};

// y = softmax(q k^T / sqrt(D)) v, (T, D), with `rows` queries on chip at a time.
enum class Program : uint8_t {
  TwoPasses,  // stores scores, and loads them once for the maximum, once for the sum, once for y
  Online,     // Softmax::add of each score when it is made; stores scores too, and loads them once for y
  Tiles       // kTileKeys scores at a time join y on chip, and none is stored (Dao 2023, alg. 1)
};
constexpr int64_t kTileKeys = 32;
std::vector<float> attend(Program, const Head&, int64_t rows, Memory&);

int64_t predicted_loads(Program, int64_t T, int64_t D, int64_t rows);
int64_t predicted_stores(Program, int64_t T, int64_t D);

struct ProgramRun {
  Program program;
  int64_t rows, kept;  // queries at a time; scores that are somewhere at a time
  Memory memory = {};
  double difference = 0;  // the largest, from the first program's y
};
constexpr int64_t kHeadTokens = 256, kHeadDims = 64;
std::vector<ProgramRun> run_programs(uint64_t seed);
void report_programs(const std::vector<ProgramRun>&, Report&);

void online_softmax_by_hand(std::ostream&);  // --print=example

}  // namespace gradus
