// The speed of attention_flash and attention_plain by length: causal, 12 heads of 64, forward and backward.
// Prints JSON lines with GFLOP/s: first of large products, then of attention, which counts 4 D FLOPs per pair
// of query and key in the forward pass and 10 D in the backward pass (two and five products, as its authors
// count).
//   build/bench/attention [--dtype=bf16] [--attention=plain] [--heads=12] [--kv-heads=3] [--lengths=512,1024]
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kernels/cuda/attention_cudnn.h"
#include "src/autograd/tape.h"
#include "src/core/json.h"
#include "src/ops/ops.h"
#include "src/train/machine.h"
#include "tests/bench/bench.h"

using namespace gradus;

static void bench_attention(int argc, char** argv) {
  Args args(argc, argv, "attention", "how fast attention is, by length");
  const std::string on = args.text("device", "cpu", "cpu or cuda");
  const DType dtype = dtype_flag(args, "type of q, k, v and y");
  const std::string which = args.choice("attention", "flash", "the timed kernel", {"flash", "plain"});
  const int64_t heads = args.integer("heads", 12, "heads of queries", 1, 1000);
  const int64_t kv = args.integer("kv-heads", heads, "heads of keys and values", 1, heads);
  std::istringstream lengths(args.text("lengths", "512,1024,8192", "numbers of tokens, separated by commas"));
  args.done();
  Context context(on);
  constexpr int64_t kDim = 64;
  const auto print = [&](const std::string& model, double gflops) {
    Json line = Json::object();
    line["model"] = model, line["device"] = on, line["program"] = "gradus", line["gflops"] = gflops;
    std::cout << line.dump() << std::endl;
  };
  if (on == "cuda" && which == "flash")
    std::cerr << "attention: "
              << (cuda::cudnn_problem().empty() ? "cuDNN, in 16 bits"
                                                : "our own kernel, because " + cuda::cudnn_problem())
              << "\n";
  print(std::string("products ") + name_of(dtype), 1e-9 * measure_gemm_peak(context.device, dtype));
  for (std::string word; std::getline(lengths, word, ',');) {
    const int64_t T = std::atoll(word.c_str());
    check(T > 0 && T <= 1 << 20, "--lengths: '", word,
          "' is not a number of tokens; write e.g. --lengths=512,1024");
    Tensor qkv(context.device, {1, T, (heads + 2 * kv) * kDim}, dtype, Kind::Temporary, "qkv");
    Tensor dy(context.device, {1, T, heads * kDim}, dtype, Kind::Temporary, "dy");
    for (Tensor* x : {&qkv, &dy}) {
      Rng rng(1, uint64_t(x->numel()));
      std::vector<double> numbers(size_t(x->numel()));
      for (double& each : numbers) each = rng.normal();
      copy_from_host(*x, numbers);
    }
    Leaf leaf;
    attach(qkv, leaf, "qkv");
    std::vector<double> forward, backward;
    const int repeats = T < 1000 ? 20 : T < 3000 ? 9 : 3;
    for (int i = 0; i <= repeats; ++i) {  // the first one warms up
      leaf.zero();
      Tape tape;
      const double start = seconds_now(context.device);
      const Tensor y =
          (which == "flash" ? attention_flash : attention_plain)(qkv, {heads, kv}, Mask::Causal, 0, 0);
      const double between = seconds_now(context.device);
      tape.backward(y, dy);
      if (i > 0)
        forward.push_back(between - start), backward.push_back(seconds_now(context.device) - between);
    }
    const double flops = 1e-9 * double(heads * T * (T + 1) / 2 * kDim);
    const std::string model = std::string("attention ") + name_of(dtype) + " T " + word;
    print(model + " forward", 4 * flops / summarize(forward).median);
    print(model + " backward", 10 * flops / summarize(backward).median);
  }
}

int main(int argc, char** argv) {
  try {
    bench_attention(argc, argv);
  } catch (const std::exception& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
}
