// What the programs faster_NN share: a kernel of the student's own beside the given one. First it must be
// right, on fresh random inputs of ragged sizes; then both are timed in turns on inputs that change, and what
// came out of the timed runs is compared too. A kernel that is wrong, that writes elsewhere, or that does its
// work only when nobody looks at the clock, is refused.
//   faster_NN [--seed=N]: the seed of the inputs, printed; by default another one in each run
// Exit code 0 if right, 1 if wrong. Times on shared machines are no grounds for a mark: the ratio is to be
// told.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "src/core/timing.h"

namespace gradus::faster {

using Kernel = std::function<void(RowShape, const std::vector<CBuf>& inputs, Out)>;

struct Contest {
  std::string exercise, op;  // "03.5", "softmax_fwd"
  Kernel given, yours;
  std::function<std::vector<int64_t>(RowShape)> inputs;  // how many numbers each of them has
  double size;                                           // inputs are uniform between -size and size
  // What is right, from inputs in fp64 (rows x cols numbers), and by how much a result may differ from it.
  std::function<std::vector<double>(RowShape, const std::vector<std::vector<double>>& inputs)> expected;
  std::function<double(RowShape, DType, double expected)> allowed;
  std::vector<RowShape> ragged;  // to be right at
  RowShape timed;
  std::vector<DType> dtypes;  // it is timed in fp32
  bool adds;                  // whether it knows Write::Add
  // What is compared: time, or what else a kernel spends; of so many turns the median.
  std::function<double()> spent = [] { return seconds_now(); };
  std::string gain = "times as fast as the given one";
  int turns = 15;
};

// A whole program: `contests` gives one for each entry that is not the given one.
int run(int argc, char** argv, const std::vector<std::string>& exercises, std::vector<Contest> (*contests)());

}  // namespace gradus::faster
