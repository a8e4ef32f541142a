// The cost of the profiler: a range without a profiler, a profiled step, and the kernel time of a profiled
// step compared with that of a step whose kernels the meter times. The steps alternate, because the speed of
// a shared machine drifts. Prints a JSON line.
#include <iostream>
#include <nlohmann/json.hpp>

#include "lessons/13_profiler/costs.h"
#include "src/optim/optimizer.h"
#include "src/train/dummy.h"
#include "tests/bench/bench.h"

using namespace gradus;

struct Trained {
  explicit Trained(const std::string& device, const TransformerConfig& config)
      : context(device), model(config), optimizer((model.initialize(1), model.parameters)) {}
  double step(const DummyBatch& data) {
    context.make_current();
    const double start = seconds_now(context.device);
    Tape tape;
    const Tensor loss = data.loss(model);
    model.parameters.zero_grad();
    tape.backward(loss);
    optimizer.step(1e-3);
    return seconds_now(context.device) - start;
  }
  Context context;
  Transformer model;
  AdamW optimizer;
};

static double kernel_seconds(const Profiler& profiler) {
  double seconds = 0;
  for (const ProfileEvent& e : profiler.events())
    if (e.track == ProfileTrack::Kernels) seconds += e.end - e.begin;
  return seconds;
}
static double kernel_seconds(Meter& meter) {
  double seconds = 0;
  for (int c = 0; c < kOpClasses; ++c) seconds += meter.totals(OpClass(c)).seconds;
  return seconds;
}

static int bench_profiler(int argc, char** argv) {
  Args args(argc, argv, "profiler", "the cost of ranges and of a profiler");
  const int64_t steps = args.integer("steps", 60, "steps of each kind, alternating", 4, 1 << 20);
  const std::string device = args.choice("device", "auto", "where to run", device_names());
  args.done();
  const TransformerConfig config{.vocab = 256, .context = 64, .layers = 4, .heads = 4, .channels = 128};
  Trained plain(device, config), profiled(device, config), timed(device, config);
  check(plain.context.device.has_data(), "profiler: meta computes nothing, so there is nothing to time");
  timed.context.device.meter().keep_times();
  std::vector<DummyBatch> batches;
  for (Trained* t : {&plain, &profiled, &timed}) {
    t->context.make_current();
    batches.push_back(dummy_batch(config, 8, config.context));
    t->step(batches.back());
  }
  std::vector<double> slower, kernels;
  int64_t ranges = 0;
  for (int64_t i = 0; i < steps; ++i) {
    const double without = plain.step(batches[0]);
    Profiler profiler(profiled.context);
    profiler.begin();
    const double with = profiled.step(batches[1]);
    profiler.end();
    timed.context.device.meter().reset_totals();
    timed.step(batches[2]);
    slower.push_back(with / without);
    kernels.push_back(kernel_seconds(profiler) / kernel_seconds(timed.context.device.meter()));
    ranges = std::count_if(profiler.events().begin(), profiler.events().end(),
                           [](const ProfileEvent& e) { return e.track != ProfileTrack::Kernels; });
  }
  Json line = Json::object();
  line["bench"] = "profiler";
  line["device"] = plain.context.device.name();
  line["range_off_ns"] = seconds_of_a_range() * 1e9;
  line["ranges_a_step"] = ranges;
  line["step_profiled_over_plain"] = summarize(slower).median;
  line["kernels_profiled_over_timed"] = summarize(kernels).median;
  std::cout << line.dump() << std::endl;
  return 0;
}

int main(int argc, char** argv) {
  return run_lesson([&] { return bench_profiler(argc, argv); });
}
