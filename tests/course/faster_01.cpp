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
  const auto M = size_t(s.rows), N = size_t(s.cols), K = in[0].size() / M;
  std::vector<double> c(M * N, 0.0);
  for (size_t i = 0; i < M; ++i)
    for (size_t k = 0; k < K; ++k)
      for (size_t j = 0; j < N; ++j) c[i * N + j] += in[0][i * K + k] * in[1][k * N + j];
  return c;
}

// The CPU's rungs are square. The GPU's are not, so that a size taken for another is seen.
static int64_t depth_on_gpu(RowShape s) { return s.rows + 3; }
static std::vector<int64_t> square(RowShape s) { return {s.rows * s.rows, s.rows * s.rows}; }
static std::vector<int64_t> on_gpu(RowShape s) {
  return {s.rows * depth_on_gpu(s), depth_on_gpu(s) * s.cols};
}

// Of K products of numbers up to 1, summed in any order: K eps of the sum of their sizes (Higham 2002,
// section 3.1).
static double allowed_for(int64_t K) { return double(K) * double(K) * 0x1p-24; }
static double allowed(RowShape s, DType, double) { return allowed_for(s.rows); }
static double allowed_on_gpu(RowShape s, DType, double) { return allowed_for(depth_on_gpu(s)); }

// On emu, with the threads in another order in each call, so that a missing barrier is seen.
static Kernel kernel(const GpuRung& rung) {
  return [=, calls = 0](RowShape s, const std::vector<CBuf>& in, Out out) mutable {
    emu::set_order(
        std::array{emu::Order::Forward, emu::Order::Reverse, emu::Order::Shuffled}[size_t(calls++ % 3)]);
    rung.multiply({}, {s.rows, s.cols, depth_on_gpu(s)}, in[0].as<float>(), in[1].as<float>(),
                  out.as<float>());
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
                      square,
                      1,
                      product,
                      allowed,
                      {{1, 1}, {7, 7}, {64, 64}, {255, 255}, {257, 257}},
                      {768, 768},
                      {DType::F32},
                      false});
  const std::vector<GpuRung> rungs_of_emu = emu::gpu_rungs(), yours_of_emu = emu::my_gpu_rungs();
  for (size_t i = 0; i < rungs_of_emu.size() && i < yours_of_emu.size(); ++i)
    if (yours_of_emu[i].multiply != rungs_of_emu[i].multiply)
      list.push_back({"01.7",
                      "GPU rung " + rungs_of_emu[i].name,
                      kernel(rungs_of_emu[i]),
                      kernel(yours_of_emu[i]),
                      on_gpu,
                      1,
                      product,
                      allowed_on_gpu,
                      {{1, 1}, {7, 5}, {33, 130}, {130, 40}},
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
