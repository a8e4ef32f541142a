// How fast attention_flash and attention_plain are: causal, 12 heads of 64, forward and backward, by length.
// A JSON line for each length, with GFLOP/s: of forward 4 D, of backward 10 D for each pair of query and key
// (what flash attention computes: two and five products; its authors count so), and the measured peak of
// products.
//   build/bench/attention [--dtype=bf16] [--attention=plain] [--heads=12] [--kv-heads=3] [--lengths=512,1024]
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/autograd/tape.h"
#include "src/core/json.h"
#include "src/ops/ops.h"
#include "src/train/machine.h"
#include "tests/bench/bench.h"

using namespace gradus;

static void bench_attention(int argc, char** argv) {
  Args args(argc, argv, "attention", "how fast attention is, by length");
  const std::string on = args.text("device", "cpu", "cpu or cuda");
  const DType dtype = dtype_flag(args, "of q, k, v and y");
  const std::string which = args.choice("attention", "flash", "what is timed", {"flash", "plain"});
  const int64_t heads = args.integer("heads", 12, "heads of queries", 1, 1000);
  const int64_t kv = args.integer("kv-heads", heads, "heads of keys and values", 1, heads);
  std::istringstream lengths(
      args.text("lengths", "512,1024,2048,4096,8192", "numbers of tokens, with commas"));
  args.done();
  Context context(on);
  constexpr int64_t kDim = 64;
  const double peak = measure_gemm_peak(context.device, dtype);
  for (std::string word; std::getline(lengths, word, ',');) {
    const int64_t T = std::stoll(word);
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
    Json line = Json::object();
    line["bench"] = "attention", line["program"] = "gradus " + which, line["dtype"] = name_of(dtype);
    line["heads"] = heads, line["kv_heads"] = kv, line["T"] = T;
    line["forward_gflops"] = 4 * flops / summarize(forward).median;
    line["backward_gflops"] = 10 * flops / summarize(backward).median;
    line["gemm_peak_gflops"] = 1e-9 * peak;
    std::cout << line.dump() << std::endl;
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
