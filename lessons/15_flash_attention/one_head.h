// One head of attention in three programs: softmax in two passes, online softmax, and tiles. All three hold
// some queries on chip, load every key and value once for them, and compute the same; they differ in what
// becomes of the scores. (No mask; backward is not here.)
#pragma once
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

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
std::vector<float> two_passes(const Head&, int64_t rows, Memory&);  // over stored scores: maximum, then sum
std::vector<float> online(const Head&, int64_t rows, Memory&);      // stores scores too; Softmax::add of each
// With a tile of `rows` x `cols` scores on chip, which are not stored (Dao et al. 2022, algorithm 1).
std::vector<float> tiles(const Head&, int64_t rows, int64_t cols, Memory&);
std::vector<double> in_fp64(const Head&);  // by the formula

// What the programs are predicted to load and store.
enum class Program : uint8_t { TwoPasses, Online, Tiles };
int64_t predicted_loads(Program, int64_t T, int64_t D, int64_t rows);
int64_t predicted_stores(Program, int64_t T, int64_t D);

}  // namespace gradus
