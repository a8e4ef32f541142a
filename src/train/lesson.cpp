#include "src/train/lesson.h"

#include <iostream>

#include "src/core/rng.h"
#include "src/core/timing.h"
#include "src/tensor/tensor.h"

namespace gradus {

Lesson::Lesson(int argc, char** argv, const std::string& lesson_name, const std::string& about,
               int64_t default_steps)
    : args(argc, argv, lesson_name, about), name(lesson_name) {
  device = args.choice("device", "auto", "where tensors live and kernels run", device_names());
  steps = args.integer("steps", default_steps, "training steps", 1, 100'000'000);
  seed = uint64_t(
      args.integer("seed", 1, "seed of weights, data order and everything else random", 0, INT64_MAX));
  memory = args.bytes("memory", 0, "budget of device memory, for example 64MiB (0: none)");
  json = args.text("json", "", "also write the report to this file");
  print = args.choice("print", "none", "tape: show the tape of the first step", {"none", "tape"});
  check = args.choice("check", "none", "nan: stop at the first op whose output is not finite (slow)",
                      {"none", "nan"});
}

void Lesson::apply(Context& context) const { context.check_finite = check == "nan"; }

int run_lesson(const std::function<int()>& body) {
  try {
    return body();
  } catch (const BadArguments& e) {
    std::cerr << e.what() << std::endl;
    return 2;
  } catch (const std::exception& e) {
    std::cerr << e.what() << std::endl;
    return 1;
  }
}

double measure_gemm_peak(Device& device) {
  double best = 0;
  for (const auto& [M, N, K] :
       {std::array<int64_t, 3>{1024, 1024, 1024}, {1024, 3072, 768}, {512, 512, 512}}) {
    const MatmulShape s{.M = M, .N = N, .K = K, .tb = Trans::Yes, .lda = K, .ldb = K, .ldc = N};
    Rng rng(1, 9);
    const auto random = [&](int64_t rows, int64_t cols) {
      std::vector<float> values(rows * cols);
      for (float& v : values) v = float(rng.normal());
      return from_host(device, values, {rows, cols}, DType::F32, Kind::Other, "GEMM peak");
    };
    const Tensor a = random(M, K), b = random(N, K);
    Tensor c = empty(a, {M, N}, "GEMM peak");
    const Timing t = measure(
        [&] { be(a).matmul(ctx(a, cost::matmul(s, a.dtype())), s, a.in(), b.in(), c.set()); }, 7, 0.2);
    best = std::max(best, 2.0 * double(M) * double(N) * double(K) / t.median);
  }
  return best;
}

}  // namespace gradus
