// Exercises 01.9 and 01.10: compares the rungs of lessons/01_gemm/faster.cpp and faster.cu with the given
// ones.
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

// The CPU's products are square. The GPU's are not, so that a kernel that mixes up M, N and K gives a wrong
// result.
static int64_t depth_on_gpu(RowShape s) { return s.rows + 3; }
static std::vector<int64_t> square(RowShape s) { return {s.rows * s.rows, s.rows * s.rows}; }
static std::vector<int64_t> on_gpu(RowShape s) {
  return {s.rows * depth_on_gpu(s), depth_on_gpu(s) * s.cols};
}

// The allowed error of a sum of K products, each of absolute value at most 1, in any order: K eps times the
// sum of the absolute values (Higham 2002, section 3.1).
static double allowed_for(int64_t K) { return double(K) * double(K) * 0x1p-24; }
static double allowed(RowShape s, DType, double) { return allowed_for(s.rows); }
static double allowed_on_gpu(RowShape s, DType, double) { return allowed_for(depth_on_gpu(s)); }

// Runs on emu, with a different order of threads in each call, so that a missing barrier gives a wrong
// result.
static Kernel kernel(const GpuRung& rung) {
  return [=, calls = 0](RowShape s, const std::vector<CBuf>& in, Out out) mutable {
    emu::set_order(
        std::array{emu::Order::Forward, emu::Order::Reverse, emu::Order::Shuffled}[size_t(calls++ % 3)]);
    rung.multiply({}, {s.rows, s.cols, depth_on_gpu(s)}, in[0].as<float>(), in[1].as<float>(),
                  out.as<float>());
  };
}

// Adds a copy of `contest` for each rung that differs from the given one.
template <class R>
static void add(std::vector<Contest>& list, Contest contest, const std::vector<R>& given,
                const std::vector<R>& yours) {
  const std::string what = contest.op;
  for (size_t i = 0; i < given.size() && i < yours.size(); ++i) {
    if (yours[i].multiply == given[i].multiply) continue;
    contest.op = what + given[i].name;
    contest.given = kernel(given[i]);
    contest.yours = kernel(yours[i]);
    list.push_back(contest);
  }
}

static std::vector<Contest> contests() {
  std::vector<Contest> list;
  const Contest on_cpu{.exercise = "01.9",
                       .op = "rung ",
                       .given = {},
                       .yours = {},
                       .inputs = square,
                       .size = 1,
                       .expected = product,
                       .allowed = allowed,
                       .ragged = {{1, 1}, {7, 7}, {64, 64}, {255, 255}, {257, 257}},
                       .timed = {768, 768},
                       .dtypes = {DType::F32},
                       .adds = false};
  Contest on_emu = on_cpu;
  on_emu.exercise = "01.10";
  on_emu.op = "GPU rung ";
  on_emu.inputs = on_gpu;
  on_emu.allowed = allowed_on_gpu;
  on_emu.ragged = {{1, 1}, {7, 5}, {33, 130}, {130, 40}};
  on_emu.timed = {128, 128};
  on_emu.spent = [] { return double(emu::traffic().bytes()); };
  on_emu.gain = "= bytes that the given kernel moves / bytes that yours moves";
  on_emu.turns = 3;
  add(list, on_cpu, rungs(), my_rungs());
  add(list, on_emu, emu::gpu_rungs(), emu::my_gpu_rungs());
  return list;
}

}  // namespace gradus::faster

int main(int argc, char** argv) {
  return gradus::faster::run(argc, argv, {"01.9", "01.10"}, gradus::faster::contests);
}
