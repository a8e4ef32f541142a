#include "lessons/17_data_parallel/scaling.h"

#include <algorithm>
#include <iostream>

#include "src/core/larger.h"
#include "src/core/table.h"
#include "src/io/atomic_file.h"
#include "src/io/plot.h"
#include "src/optim/optimizer.h"
#include "src/parallel/comm/cluster.h"
#include "src/parallel/data_parallel.h"
#include "src/parallel/shards.h"
#include "src/train/dummy.h"

namespace gradus {

std::vector<Network> networks_of_a100() {
  std::vector<Network> networks;
  for (const char* name : {"nvlink", "pcie", "ethernet100", "ethernet10", "nodes"})
    networks.push_back(network_called(name));
  return networks;
}

struct ScaledRun {
  double seconds;
  std::vector<Span> timeline;
};

static ScaledRun run_step(const Network& network, int64_t ranks, const Machine& machine, bool overlaps,
                          double slower = 1) {
  constexpr int64_t kSequences = 8;
  TransformerConfig config = transformer_config("gpt2");
  config.precision = mixed(DType::BF16);
  config.attention = attention_flash;
  ClusterArgs args{.ranks = ranks, .device = "meta", .network = network, .keep_timeline = true};
  args.computed = [&](int64_t, Context& c) { return slower * predicted_seconds(c.device.meter(), machine); };
  ClusterRun run = run_cluster(args, [&](Comm& comm) {
    Transformer model(config);
    GradientBuckets buckets(comm, model.parameters, kPyTorchBucket);
    AdamW optimizer(model.parameters);
    current().device.meter().reset_totals();  // the clock begins with the step
    const DummyBatch batch = dummy_batch(config, kSequences, config.context, 1);
    Tape tape;
    const Tensor loss = batch.loss(model);
    if (overlaps) buckets.sum_during_backward();
    tape.backward(loss);
    buckets.sum();
    optimizer.clip_grad_norm(1.0);
    optimizer.step(1e-3);
  });
  return {run.seconds[0], std::move(run.timeline)};
}

constexpr const char* kMachine = "A100";

std::vector<ScaledStep> scaled_steps(const std::vector<int64_t>& ranks, double computes) {
  const Machine& machine = machine_called(kMachine);
  const double least = run_step({}, 1, machine, false).seconds, slower = computes > 0 ? computes / least : 1;
  std::vector<ScaledStep> steps;
  for (const Network& network : networks_of_a100())
    for (const int64_t N : ranks)
      steps.push_back({network.name, N, slower * least, run_step(network, N, machine, false, slower).seconds,
                       run_step(network, N, machine, true, slower).seconds});
  return steps;
}

void scaling_table(const std::vector<ScaledStep>& steps, const std::vector<ScaledStep>& published,
                   const std::string& picture, Report& report) {
  std::cout
      << "\n(b) GPT-2 124M in bf16, 8 sequences of 1,024 tokens a rank, " << kMachine
      << ": efficiency, t(1) / t(N)\nComputing takes what a peak allows at least, or what it took llm.c on 8 "
      << kMachine << " (discussion 481)\n";
  LinePlot plot{"GPT-2 124M: efficiency of N ranks, overlapped", "ranks", "%", {}, {}};
  Table table({"network", "ranks", "computes", "sums after", "efficiency", "overlapped", "efficiency"});
  auto as_published = published.begin();
  const auto row = [&](const ScaledStep& s, const char* how) {
    table.row({s.network, std::to_string(s.ranks), how + seconds_text(s.computes), seconds_text(s.after),
               percent_text(s.computes / s.after), seconds_text(s.overlapped),
               percent_text(s.computes / s.overlapped)});
  };
  double shortest = 0, most = 0, saved = 0;  // shortest: what a step needs at least, in steps that overlap
  for (const ScaledStep& s : steps) {
    if (s.ranks == 1) plot.series.push_back({s.network, {}, {}, Series::Marks::LineAndDots});
    plot.series.back().x.push_back(double(s.ranks));
    plot.series.back().y.push_back(100 * s.computes / s.overlapped);
    shortest = larger(shortest, std::max(s.computes, s.after - s.computes) / s.overlapped);
    most = larger(most, s.overlapped / s.after);
    saved = larger(saved, s.after / s.overlapped);
    if (s.ranks != 8 && s.ranks != 64) continue;
    row(s, "at least ");
    if (as_published != published.end()) row(*as_published++, "");
  }
  std::cout << table;
  write_file(picture, draw(plot));
  report.check_at_least("overlapped / the longer of computing and sending", 1 / shortest, 1 - 1e-9);
  report.check_at_most("overlapped / one after the other", most, 1);
  report.check_at_most("the same, where it saves most", 1 / saved, 0.85);
}

void timelines(const Lesson& lesson) {
  const Machine& machine = machine_called(kMachine);
  const Network& network = network_called("ethernet100");
  const std::string what = "A step of GPT-2 on 4 ranks, 100 Gb/s: gradients summed ";
  const ScaledRun after = run_step(network, 4, machine, false),
                  overlapped = run_step(network, 4, machine, true);
  write_file(lesson.plot("17_after.svg"), draw_timeline(what + "afterwards", after.timeline));
  write_file(lesson.plot("17_overlapped.svg"), draw_timeline(what + "meanwhile", overlapped.timeline));
  write_trace(lesson.plot("17_overlapped.json"), overlapped.timeline);
}

}  // namespace gradus
