// Times whole training steps of a GPT-2-shaped model (forward, backward and AdamW) on random tokens, the peak
// rate of matrix products, and the products of a step. The products are timed in every second step only,
// because waiting for each of them slows a GPU down. Prints one JSON line, for tables and for comparison with
// the same model in other programs.
#include <iostream>
#include <nlohmann/json.hpp>

#include "src/nn/transformer.h"
#include "src/optim/optimizer.h"
#include "src/train/dummy.h"
#include "src/train/lesson.h"
#include "tests/bench/bench.h"
#ifdef GRADUS_CUDA
#include <cuda_profiler_api.h>
#endif

using namespace gradus;

struct Times {
  std::vector<double> total, forward, backward, update, matmul;  // seconds of each counted step
  double loss = 0;                                               // of the last step
};

// The device's matmul with a clock around it, which replaces this entry in a copy of the kernel table.
static const Backend* given;
static double matmul_seconds;
static void timed_matmul(const Ctx& ctx, const MatmulShape& shape, CBuf a, CBuf b, Out c) {
  const double start = seconds_now(current().device);
  given->matmul(ctx, shape, a, b, c);
  matmul_seconds += seconds_now(current().device) - start;
}

// `ncu --profile-from-start=off` profiles only the last step without a clock.
static void let_profilers_see([[maybe_unused]] bool see) {
#ifdef GRADUS_CUDA
  see ? cudaProfilerStart() : cudaProfilerStop();
#endif
}

static Times run_steps(Transformer& gpt, const DummyBatch& data, int64_t steps) {
  Device& device = current().device;
  given = &device.backend();
  Backend with_clock = *given;
  with_clock.matmul = timed_matmul;
  AdamW optimizer(gpt.parameters);
  Times times;
  for (int64_t step = 0; step < 2 * steps + 2; ++step) {
    const bool time_products = step % 2 == 1, profiled = step == 2 * steps;
    if (profiled) let_profilers_see(true);
    device.use(time_products ? with_clock : *given);
    matmul_seconds = 0;
    const double t0 = seconds_now(device);
    Tape tape;
    const Tensor loss = data.loss(gpt);
    times.loss = item(loss);
    const double t1 = seconds_now(device);
    tape.backward(loss);
    const double t2 = seconds_now(device);
    optimizer.step(3e-4);
    gpt.parameters.drop_grad();
    const double t3 = seconds_now(device);
    if (profiled) let_profilers_see(false);
    if (step < 2) continue;
    if (time_products) {
      times.matmul.push_back(matmul_seconds);
      continue;
    }
    times.total.push_back(t3 - t0);
    times.forward.push_back(t1 - t0);
    times.backward.push_back(t2 - t1);
    times.update.push_back(t3 - t2);
  }
  device.use(*given);
  return times;
}

static Json line_of(const TransformerConfig& model, int64_t batch, const Times& times) {
  Device& device = current().device;
  const double seconds = summarize(times.total).median,
               peak = measure_gemm_peak(device, model.precision.value);
  const double tokens = double(batch * model.context);
  const double model_flops = double(model.flops_per_token()) * tokens;
  // As llm.c counts: only the half of attention's T x T pairs that the causal mask leaves.
  const double causal_flops =
      model_flops - 6.0 * double(model.layers * model.channels * model.context) * tokens;
  // Attention's kernels do more than products, so their products are counted at the peak rate: 4 D FLOPs per
  // pair forward, 8 D backward.
  const double attention_flops =
      12.0 * double(model.layers * model.channels * batch * model.context * (model.context + 1) / 2);
  const double products = summarize(times.matmul).median + attention_flops / peak;
  Json line = Json::object();
  line["bench"] = "step";
  line["device"] = device.name();
  line["dtype"] = name_of(model.precision.value);
  line["attention"] = model.attention == attention_flash ? "flash" : "plain";
  line["parameters"] = model.parameter_count();
  line["batch"] = batch;
  line["seq"] = model.context;
  line["ms_per_step"] = seconds * 1e3;
  line["ms_forward"] = summarize(times.forward).median * 1e3;
  line["ms_backward"] = summarize(times.backward).median * 1e3;
  line["ms_update"] = summarize(times.update).median * 1e3;
  line["tokens_per_s"] = tokens / seconds;
  line["model_gflops"] = model_flops / seconds * 1e-9;
  line["ms_products"] = products * 1e3;
  line["step_over_products"] = seconds / products;
  line["gemm_peak_gflops"] = peak * 1e-9;
  line["share_of_peak"] = model_flops / seconds / peak;
  line["share_of_peak_causal"] = causal_flops / seconds / peak;
  line["loss"] = times.loss;
  line["peak_bytes"] = device.meter().at_peak().allocated();
  return line;
}

static int bench_step(int argc, char** argv) {
  Args args(argc, argv, "step", "time training steps of a GPT-2-shaped model");
  TransformerConfig model;
  model.layers = args.integer("layers", 12, "transformer blocks", 1, 1000);
  model.heads = args.integer("heads", 12, "attention heads", 1, 1000);
  model.channels = args.integer("dim", 768, "width", 1, 1 << 20);
  model.vocab = args.integer("vocab", 50257, "vocabulary", 1, 1 << 24);
  model.context = args.integer("seq", 256, "tokens per sequence", 1, 1 << 20);
  const int64_t batch = args.integer("batch", 4, "sequences per step", 1, 1 << 20);
  const int64_t steps =
      args.integer("steps", 6, "timed steps, and as many that time the products", 1, 1 << 20);
  const std::string recipe =
      args.choice("recipe", "fp32", "number formats (lesson 09)", {std::begin(kRecipes), std::end(kRecipes)});
  model.precision = precision_recipe(recipe);
  const std::string attention =
      args.choice("attention", "plain", "plain saves probabilities, flash log-sum-exps", {"plain", "flash"});
  if (attention == "flash") model.attention = attention_flash;
  const std::string keep =
      args.choice("keep", "all", "what each block saves for the backward pass", {"all", "input"});
  const std::string device_name = args.choice("device", "auto", "where to run", device_names());
  args.done();
  Context context(device_name);
  check(context.device.has_data(), "step: meta computes nothing, so there is nothing to time");
  Transformer gpt(model);
  gpt.initialize(1);
  if (keep == "input") gpt.segments.assign(size_t(model.layers), {1, Keep::Input});
  const DummyBatch data = dummy_batch(model, batch, model.context);

  std::cout << line_of(model, batch, run_steps(gpt, data, steps)).dump() << std::endl;
  return 0;
}

int main(int argc, char** argv) {
  return run_lesson([&] { return bench_step(argc, argv); });
}
