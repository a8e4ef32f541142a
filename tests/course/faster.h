// What the programs faster_NN share: they compare a student's kernel with the given one. First the kernel
// must be right on new random inputs of ragged sizes. Then both are timed in alternating runs on changing
// inputs, and the results of the timed runs are compared, too. A kernel is rejected if it is wrong, if it
// writes outside its result, or if it skips work while it is timed.
//   faster_NN [--seed=N]: the seed of the inputs, which is printed; by default a different one in each run
// Exit code 0 if right, 1 if wrong. The ratio of the times is only reported: times on shared machines are no
// basis for a grade.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "src/core/timing.h"

namespace gradus::faster {

using Kernel = std::function<void(RowShape, const std::vector<CBuf>& inputs, Out)>;

struct Contest {
  std::string exercise, op;  // "03.6", "softmax_fwd"
  Kernel given, yours;
  std::function<std::vector<int64_t>(RowShape)> inputs;  // the number of elements of each input
  double size;                                           // inputs are uniform between -size and size
  // The right result (rows x cols numbers) for inputs in fp64, and the allowed error of a result.
  std::function<std::vector<double>(RowShape, const std::vector<std::vector<double>>& inputs)> expected;
  std::function<double(RowShape, DType, double expected)> allowed;
  std::vector<RowShape> ragged;  // the shapes at which it must be right
  RowShape timed;
  std::vector<DType> dtypes;  // it is timed in fp32
  bool adds;                  // whether it supports Write::Add
  // The cost that is compared, by default time; the median of `turns` alternating runs counts.
  std::function<double()> spent = [] { return seconds_now(); };
  std::string gain = "times as fast as the given kernel";
  int turns = 15;
};

// The whole program. `contests` returns a contest for each entry that differs from the given one.
int run(int argc, char** argv, const std::vector<std::string>& exercises, std::vector<Contest> (*contests)());

}  // namespace gradus::faster
