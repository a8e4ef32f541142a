// The time of lesson 08's policies: steps of a GPT-2-shaped model, one of each policy per round, because the
// speed of a shared machine changes. Prints one JSON line per policy, with its extra time and its extra
// FLOPs, both as fractions of a step that saves all tensors.
#include <iostream>
#include <nlohmann/json.hpp>

#include "lessons/08_checkpointing/policies.h"
#include "src/optim/optimizer.h"
#include "src/train/dummy.h"
#include "src/train/lesson.h"
#include "tests/bench/bench.h"

using namespace gradus;

struct Measured {
  std::vector<double> seconds;  // of each counted step
  int64_t flops = 0, saved = 0;
};

static void step(Transformer& gpt, AdamW& optimizer, const DummyBatch& data, Measured& m) {
  Device& device = current().device;
  device.meter().reset_totals();
  const double start = seconds_now(device);
  Tape tape;
  const Tensor loss = data.loss(gpt);
  m.saved = tape.saved_bytes();
  tape.backward(loss);
  optimizer.step(3e-4);
  gpt.parameters.drop_grad();
  m.seconds.push_back(seconds_now(device) - start);
  m.flops = device.meter().flops();
}

static int bench_checkpointing(int argc, char** argv) {
  Args args(argc, argv, "checkpointing", "time the policies of lesson 08, in alternating steps");
  TransformerConfig model =
      transformer_config(args.text("model", "gpt2", "gpt2, gpt2-medium, gpt-LAYERSxCHANNELSxHEADS"));
  model.context = args.integer("seq", 256, "tokens per sequence", 1, 1 << 20);
  const int64_t batch = args.integer("batch", 4, "sequences per step", 1, 1 << 20);
  const int64_t steps =
      args.integer("steps", 7, "counted steps of each policy; two more warm up", 1, 1 << 20);
  const std::string device_name = args.choice("device", "auto", "where to run", device_names());
  args.done();
  Context context(device_name);
  check(context.device.has_data(), "checkpointing: meta computes nothing, so there is nothing to time");
  Transformer gpt(model);
  gpt.initialize(1);
  AdamW optimizer(gpt.parameters);
  const DummyBatch data = dummy_batch(model, batch, model.context);

  const std::vector<Policy> all = policies(model.layers);
  std::vector<Measured> measured(all.size());
  for (int64_t round = 0; round < steps + 2; ++round)
    for (size_t i = 0; i < all.size(); ++i) {
      all[i].apply(gpt);
      if (round == 2) measured[i].seconds.clear();
      step(gpt, optimizer, data, measured[i]);
    }
  // The median of each round's ratio, because the speed of a shared machine drifts.
  const auto extra_time = [&](size_t i) {
    std::vector<double> extra;
    for (int64_t n = 0; n < steps; ++n)
      extra.push_back(measured[i].seconds[size_t(n)] / measured[0].seconds[size_t(n)] - 1);
    return summarize(extra).median;
  };
  for (size_t i = 0; i < all.size(); ++i) {
    Json line = Json::object();
    line["bench"] = "checkpointing";
    line["device"] = context.device.name();
    line["parameters"] = model.parameter_count();
    line["batch"] = batch;
    line["seq"] = model.context;
    line["policy"] = all[i].name;
    line["saved_bytes"] = measured[i].saved;
    line["ms_per_step"] = summarize(measured[i].seconds).median * 1e3;
    line["extra_flops"] = double(measured[i].flops) / double(measured[0].flops) - 1;
    line["extra_time"] = extra_time(i);
    std::cout << line.dump() << std::endl;
  }
  return 0;
}

int main(int argc, char** argv) {
  return run_lesson([&] { return bench_checkpointing(argc, argv); });
}
