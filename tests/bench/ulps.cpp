// The largest errors of the CPU kernels' exp, tanh and erf (kernels/cpu/vmath.h) over all fp32 numbers,
// compared with the C library in fp64. Takes some minutes. Prints one JSON line per function.
#include <iostream>
#include <nlohmann/json.hpp>

#include "kernels/cpu/vmath.h"
#include "src/core/args.h"
#include "src/core/progress.h"
#include "src/train/lesson.h"
#include "tests/kernels/ulps.h"

using namespace gradus;

constexpr int64_t kChunk = int64_t(1) << 16;  // numbers with the same upper bits

struct Worst {
  double ulps = 0;
  float at = 0;
  void include(double error, float x) {
    if (!(error <= ulps)) ulps = error, at = x;  // also if it is NaN
  }
};

// exp is 0 where the exact value is below 2e-38: there the error counts in absolute terms.
static double error_of_exp(float x, float got) {
  const double want = std::exp(double(x));
  if (want > double(std::numeric_limits<float>::max())) return std::isinf(got) ? 0 : INFINITY;
  return x < -86.9f ? double(got) : ulps(got, want);
}
static double error_of_tanh(float x, float got) { return ulps(got, std::tanh(double(x))); }
static double error_of_erf(float x, float got) { return ulps(got, std::erf(double(x))); }

template <float (*kFunction)(float)>
[[gnu::flatten, gnu::noinline]] static void evaluate(uint32_t first, float* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < kChunk; ++i) {
    x[i] = std::bit_cast<float>(first + uint32_t(i));
    y[i] = kFunction(x[i]);
  }
}

template <float (*kFunction)(float)>
static void measure(const char* name, double (*error)(float, float)) {
  constexpr int64_t kChunks = (int64_t(1) << 32) / kChunk;
  Worst worst;
  int64_t done = 0;
  Progress progress(name, kChunks);
#pragma omp parallel
  {
    std::vector<float> x(kChunk), y(kChunk);
    Worst mine;
#pragma omp for schedule(dynamic, 16)
    for (int64_t chunk = 0; chunk < kChunks; ++chunk) {
      evaluate<kFunction>(uint32_t(chunk * kChunk), x.data(), y.data());
      for (size_t i = 0; i < size_t(kChunk); ++i)
        if (std::isnan(x[i]) && std::isnan(y[i]))
          continue;
        else
          mine.include(error(x[i], y[i]), x[i]);
#pragma omp critical
      progress.step(++done);
    }
#pragma omp critical
    worst.include(mine.ulps, mine.at);
  }
  nlohmann::ordered_json line{
      {"bench", "ulps"}, {"function", name}, {"worst_ulp", worst.ulps}, {"at", worst.at}};
  std::cout << line.dump() << std::endl;
}

int main(int argc, char** argv) {
  return run_lesson([&] {
    Args args(argc, argv, "ulps", "the largest errors of exp, tanh and erf over all fp32 numbers");
    args.done();
    measure<cpu::vexp>("exp", error_of_exp);
    measure<cpu::vtanh>("tanh", error_of_tanh);
    measure<cpu::verf>("erf", error_of_erf);
    return 0;
  });
}
