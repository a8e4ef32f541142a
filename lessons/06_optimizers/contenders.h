// The optimizers that lesson 06 compares, the learning rates that each is tried with, and what its states
// should take.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/optim/optimizer.h"

namespace gradus {

struct Contender {
  std::string name;
  double rate;  // the middle one of kRates, each three times the one before
  std::function<std::unique_ptr<Optimizer>(Parameters&)> make;
};
constexpr int kRates = 5;
const std::vector<Contender>& contenders();

// What an optimizer keeps, in bytes, in fp32, of a matrix (out, in), or of a vector, for which out is 1.
// `in_block`: it is a matrix of a transformer's block.
int64_t state_bytes(const std::string& optimizer, int64_t out, int64_t in, bool in_block);
int64_t state_bytes(const std::string& optimizer, const Parameters& parameters);  // of all of them

}  // namespace gradus
