// The rate of each matrix product of a training step of the small model (8 x 64 tokens) and of GPT-2 (4 x
// 256): of a linear layer, forward (y = x W^T), and the gradients dx = dy W and dW = dy^T x. Prints a JSON
// line per product; beside_products.sh compares them with PyTorch's.
#include <iostream>
#include <nlohmann/json.hpp>

#include "src/core/json.h"
#include "src/tensor/kernel_calls.h"
#include "src/train/lesson.h"
#include "tests/bench/bench.h"

using namespace gradus;

struct Linear {
  const char* name;
  int64_t rows, in, out;
};
static constexpr Linear kLayers[] = {
    {"small qkv", 512, 128, 384},       {"small proj", 512, 128, 128},
    {"small fc", 512, 128, 512},        {"small out", 512, 512, 128},
    {"small head", 512, 128, 256},      {"gpt2-124M qkv", 1024, 768, 2304},
    {"gpt2-124M proj", 1024, 768, 768}, {"gpt2-124M fc", 1024, 768, 3072},
    {"gpt2-124M out", 1024, 3072, 768}, {"gpt2-124M head", 1024, 768, 50257},
};

static void bench_product(Device& device, const std::string& name, const MatmulShape& s) {
  BenchBuffer a(device, DType::F32, s.M * s.K), b(device, DType::F32, s.K * s.N),
      c(device, DType::F32, s.M * s.N);
  a.randomize(1), b.randomize(2);
  const Timing time = measure(
      device, [&] { device.backend().matmul(device.ctx(), s, a.in(), b.in(), c.out()); }, 5, 0.1);
  Json line = Json::object();
  line["model"] = name, line["device"] = device.name(), line["program"] = "gradus";
  line["gflops"] = 2e-9 * double(s.M) * double(s.N) * double(s.K) / time.median;
  std::cout << line.dump() << std::endl;
}

int main(int argc, char** argv) {
  return run_lesson([&] {
    Args args(argc, argv, "products", "the rate of each matrix product of a training step");
    Context context(args.text("device", "cpu", "cpu or cuda"));
    args.done();
    for (const auto& [name, rows, in, out] : kLayers) {
      const std::string layer = name;
      bench_product(context.device, layer + " forward",
                    {.M = rows, .N = out, .K = in, .tb = Trans::Yes, .lda = in, .ldb = in, .ldc = out});
      bench_product(context.device, layer + " dx",
                    {.M = rows, .N = in, .K = out, .lda = out, .ldb = in, .ldc = in});
      bench_product(context.device, layer + " dW",
                    {.M = out, .N = in, .K = rows, .ta = Trans::Yes, .lda = out, .ldb = in, .ldc = in});
    }
    return 0;
  });
}
