// Exercises 01.4 and 01.7: the rungs of lessons/01_gemm/faster.cpp and faster.cu beside the given ones.
#include <array>

#include "kernels/emu/order.h"
#include "lessons/01_gemm/gpu_rungs.h"
#include "lessons/01_gemm/rungs.h"
#include "tests/course/faster.h"

namespace gradus::faster {

static Kernel kernel(const Rung& rung) {
  return [=](RowShape s, const std::vector<CBuf>& in, Out out) {
    rung.multiply(s.rows, in[0].as<float>(), in[1].as<float>(), out.as<float>());
  };
}

static std::vector<double> product(RowShape s, const std::vector<std::vector<double>>& in) {
  const auto n = size_t(s.rows);
  std::vector<double> c(n * n, 0.0);
  for (size_t i = 0; i < n; ++i)
    for (size_t k = 0; k < n; ++k)
      for (size_t j = 0; j < n; ++j) c[i * n + j] += in[0][i * n + k] * in[1][k * n + j];
  return c;
}

// Of n products of numbers up to 1, summed in any order: n eps of the sum of their sizes (Higham 2002,
// eq. 3.5).
static double allowed(RowShape s, DType, double) { return double(s.rows) * double(s.rows) * 0x1p-24; }

static std::vector<int64_t> two_matrices(RowShape s) { return {s.rows * s.rows, s.rows * s.rows}; }

// On emu, with the threads in another order in each call, so that a missing barrier is seen.
static Kernel kernel(const GpuRung& rung) {
  return [=, calls = 0](RowShape s, const std::vector<CBuf>& in, Out out) mutable {
    emu::set_order(
        std::array{emu::Order::Forward, emu::Order::Reverse, emu::Order::Shuffled}[size_t(calls++ % 3)]);
    rung.multiply({}, {s.rows, s.rows, s.rows}, in[0].as<float>(), in[1].as<float>(), out.as<float>());
  };
}

static std::vector<Contest> contests() {
  std::vector<Contest> list;
  const std::vector<Rung> given = rungs(), yours = my_rungs();
  for (size_t i = 0; i < given.size() && i < yours.size(); ++i)
    if (yours[i].multiply != given[i].multiply)
      list.push_back({"01.4",
                      "rung " + given[i].name,
                      kernel(given[i]),
                      kernel(yours[i]),
                      two_matrices,
                      1,
                      product,
                      allowed,
                      {{1, 1}, {7, 7}, {64, 64}, {255, 255}, {257, 257}},
                      {768, 768},
                      {DType::F32},
                      false});
  const std::vector<GpuRung> on_gpu = emu::gpu_rungs(), yours_on_gpu = emu::my_gpu_rungs();
  for (size_t i = 0; i < on_gpu.size() && i < yours_on_gpu.size(); ++i)
    if (yours_on_gpu[i].multiply != on_gpu[i].multiply)
      list.push_back({"01.7",
                      "GPU rung " + on_gpu[i].name,
                      kernel(on_gpu[i]),
                      kernel(yours_on_gpu[i]),
                      two_matrices,
                      1,
                      product,
                      allowed,
                      {{1, 1}, {7, 7}, {33, 33}, {130, 130}},
                      {128, 128},
                      {DType::F32},
                      false,
                      [] { return double(emu::traffic().bytes()); },
                      "times as sparing with bytes as the given one",
                      3});
  return list;
}

}  // namespace gradus::faster

int main(int argc, char** argv) {
  return gradus::faster::run(argc, argv, {"01.4", "01.7"}, gradus::faster::contests);
}
