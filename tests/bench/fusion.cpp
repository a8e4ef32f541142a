// Steps of a GPT-2-shaped model in alternating rounds: op by op, captured, and captured with compiled chains;
// with the loss of all logits, or of some rows at a time. Prints one JSON line for each.
#include <iostream>
#include <nlohmann/json.hpp>

#include "src/nn/transformer.h"
#include "src/optim/optimizer.h"
#include "src/train/chains.h"
#include "src/train/dummy.h"
#include "src/train/lesson.h"
#include "tests/bench/bench.h"

using namespace gradus;

namespace {

// A model, and a step of it.
struct Trained {
  explicit Trained(const TransformerConfig& config, int64_t batch)
      : model(config), optimizer(model.parameters), data(dummy_batch(config, batch, config.context)) {
    model.initialize(1);
  }
  void step() {
    loss = {};
    model.parameters.zero_grad();
    Tape tape;
    loss = data.loss(model);
    tape.backward(loss);
    optimizer.step();
  }
  Transformer model;
  AdamW optimizer;
  DummyBatch data;
  Tensor loss;
};

int bench_fusion(int argc, char** argv) {
  Args args(argc, argv, "fusion",
            "time steps op by op, captured, and with compiled chains, in alternating rounds");
  TransformerConfig config = transformer_config("gpt2");
  config.attention = attention_flash;
  config.layers = args.integer("layers", 12, "transformer blocks", 1, 1000);
  config.context = args.integer("seq", 64, "tokens per sequence", 1, 1 << 20);
  config.dropout = args.number("dropout", 0, "probability", 0, 1);
  const int64_t batch = args.integer("batch", 4, "sequences per step", 1, 1 << 20);
  const int64_t rows = args.integer("loss-rows", 256, "rows of logits at a time", 1, 1 << 20);
  const int64_t rounds = args.integer("rounds", 7, "timed steps of each", 1, 1 << 20);
  const std::string folder = args.text("folder", "build/chains", "where compiled chains are kept");
  const std::string device_name = args.choice("device", "auto", "where to run", device_names());
  args.done();
  Context context(device_name);
  check(context.device.has_data(), "fusion: meta computes nothing, so there is nothing to time");
  TransformerConfig in_rows = config;
  in_rows.loss_rows = rows;
  Trained trained(config, batch), trained_in_rows(in_rows, batch);
  CapturedStep captured, compiled;
  RunTimeCompiler compiler(folder, RunTimeCompiler::built_with(context.device.name()));
  const std::vector<Tensor> inputs{trained.data.ids, trained.data.targets};
  const auto all_rows = [&] { trained.step(); };
  const std::vector<std::pair<std::string, std::function<void()>>> ways{
      {"op by op", all_rows},
      {"captured", [&] { captured.run(inputs, all_rows); }},
      {"compiled", [&] { compiled.run(inputs, all_rows); }},
      {"rows of logits", [&] { trained_in_rows.step(); }}};
  std::vector<std::vector<double>> seconds(ways.size());
  for (int64_t round = -3; round < rounds; ++round) {
    if (round == 0) fuse_chains(compiled, compiler);
    for (size_t w = 0; w < ways.size(); ++w) {
      for (Trained* each : {&trained, &trained_in_rows}) each->optimizer.set_learning_rate(1e-4);
      const double start = seconds_now(context.device);
      ways[w].second();
      if (round >= 0) seconds[w].push_back(seconds_now(context.device) - start);
    }
  }
  for (size_t w = 0; w < ways.size(); ++w) {
    Json line = Json::object();
    line["bench"] = "fusion", line["device"] = context.device.name(), line["step"] = ways[w].first;
    line["parameters"] = config.parameter_count(), line["batch"] = batch, line["seq"] = config.context;
    line["ms_per_step"] = 1e3 * summarize(seconds[w]).median;
    line["over_op_by_op"] = summarize(seconds[w]).median / summarize(seconds[0]).median;
    std::cout << line.dump() << std::endl;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_lesson([&] { return bench_fusion(argc, argv); });
}
