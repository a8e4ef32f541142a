// The optimizers that lesson 06 compares, their learning rates, and the predicted bytes of their states.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/optim/optimizer.h"

namespace gradus {

struct Contender {
  std::string name;
  double rate;  // the second of kRates; each is three times the one before
  std::function<std::unique_ptr<Optimizer>(Parameters&)> make;
};
constexpr int kRates = 4;
const std::vector<Contender>& contenders();

// The bytes of an optimizer's states, in fp32, for a matrix (out, in), or for a vector, for which out is 1.
// `in_block`: it is a matrix of a transformer block.
int64_t state_bytes(const std::string& optimizer, int64_t out, int64_t in, bool in_block);
int64_t state_bytes(const std::string& optimizer, const Parameters& parameters);  // for all of them

}  // namespace gradus
