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

std::vector<ScaledStep> scaled_steps(const std::vector<int64_t>& ranks, double compute) {
  const Machine& machine = machine_called(kMachine);
  const double least = run_step({}, 1, machine, false).seconds, slower = compute > 0 ? compute / least : 1;
  std::vector<ScaledStep> steps;
  for (const Network& network : networks_of_a100())
    for (const int64_t N : ranks)
      steps.push_back({network.name, N, slower * least, run_step(network, N, machine, false, slower).seconds,
                       run_step(network, N, machine, true, slower).seconds});
  return steps;
}

// Latency and bandwidth of each network's link.
static std::string links_text(const std::vector<Network>& networks) {
  const auto of = [](const Link& link) {
    return seconds_text(link.latency) + ", " + number_text(1e-9 * link.bandwidth) + " GB/s";
  };
  std::string text;
  for (const Network& n : networks)
    text += n.per_node > 0 ? "\n" + n.name + ": nodes of " + std::to_string(n.per_node) + " ranks, " +
                                 of(n.link) + " within a node, " + of(n.between) + " per rank between nodes"
                           : (text.empty() ? "" : "; ") + n.name + " " + of(n.link);
  return text;
}

void scaling_table(const std::vector<ScaledStep>& steps, const std::vector<ScaledStep>& published,
                   const std::string& picture, Report& report) {
  std::cout
      << "\n(b) Predicted ms per step: GPT-2 124M in bf16, gradients in fp32, on N ranks; efficiency t(1) / "
         "t(N) and speedup N t(1) / t(N), both overlapped\nEach rank: an "
      << kMachine
      << " with 8 sequences of 1,024 tokens. Compute from: roofline bound (a lower bound by the "
         "published peak FLOP/s\nand bandwidth), or published run (llm.c on 8 "
      << kMachine << ", discussion 481: 64 sequences per rank in 300 ms, divided by 8)\nLinks, each way: "
      << links_text(networks_of_a100()) << "\n";
  LinePlot plot{
      "GPT-2 124M on A100: efficiency, overlapped (roofline bound)", "ranks", "t(1) / t(N), %", {}, {}};
  Table table({"network", "ranks", "compute from", "compute, ms", "all-reduces, ms", "no overlap, ms",
               "overlapped, ms", "efficiency", "speedup"});
  auto as_published = published.begin();
  const auto row = [&](const ScaledStep& s, const char* source) {
    const auto ms = [](double seconds) { return number_text(1e3 * seconds); };
    table.row({s.network, std::to_string(s.ranks), source, ms(s.compute), ms(s.no_overlap - s.compute),
               ms(s.no_overlap), ms(s.overlapped), percent_text(s.compute / s.overlapped),
               number_text(double(s.ranks) * s.compute / s.overlapped)});
  };
  double shortest = 0, most = 0, saved = 0;  // shortest: max(compute, all-reduces) / overlapped, largest
  for (const ScaledStep& s : steps) {
    if (s.ranks == 1) plot.series.push_back({s.network, {}, {}, Series::Marks::LineAndDots});
    plot.series.back().x.push_back(double(s.ranks));
    plot.series.back().y.push_back(100 * s.compute / s.overlapped);
    shortest = larger(shortest, std::max(s.compute, s.no_overlap - s.compute) / s.overlapped);
    most = larger(most, s.overlapped / s.no_overlap);
    saved = larger(saved, s.no_overlap / s.overlapped);
    if (s.ranks != 8 && s.ranks != 64) continue;
    row(s, "roofline bound");
    if (as_published != published.end()) row(*as_published++, "published run");
  }
  std::cout << table;
  write_file(picture, draw(plot));
  const std::string rows = "(b), 1 to 64 ranks: overlapped / ";
  report.check_at_least(rows + "max(compute, all-reduces), smallest", 1 / shortest, 1 - 1e-9);
  report.check_at_most(rows + "no overlap, largest", most, 1);
  report.check_at_most(rows + "no overlap, smallest", 1 / saved, 0.85);
}

void timelines(const Lesson& lesson) {
  const Machine& machine = machine_called(kMachine);
  const Network& network = network_called("ethernet100");
  const ScaledRun no_overlap = run_step(network, 8, machine, false),
                  overlapped = run_step(network, 8, machine, true);
  std::vector<Span> drawn;
  for (const ScaledRun* run : {&no_overlap, &overlapped})
    for (Span s : run->timeline)
      if (s.rank == 0) s.rank = run == &overlapped, drawn.push_back(s);
  write_file(
      lesson.plot("17_overlapped.svg"),
      draw_timeline("GPT-2 on 8 ranks, 100 Gb/s (roofline bound): no overlap " +
                        seconds_text(no_overlap.seconds) + ", overlapped " + seconds_text(overlapped.seconds),
                    drawn, {"no overlap", "overlapped"}));
  write_trace(lesson.plot("17_overlapped.json"), overlapped.timeline);
}

}  // namespace gradus
