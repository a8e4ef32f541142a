#include "lessons/17_data_parallel/scaling.h"

#include <cmath>
#include <iostream>

#include "src/core/table.h"
#include "src/data/dummy.h"
#include "src/dist/cluster.h"
#include "src/dist/data_parallel.h"
#include "src/io/atomic_file.h"
#include "src/io/plot.h"
#include "src/optim/optimizer.h"

namespace gradus {

struct ScaledRun {
  double seconds;
  std::vector<Span> timeline;
};

static ScaledRun run_step(const Network& network, int64_t ranks, const Machine& machine, bool overlaps) {
  constexpr int64_t kSequences = 8, kBucketBytes = int64_t(25) << 20;  // the bucket is PyTorch's
  TransformerConfig config = transformer_config("gpt2");
  config.precision = mixed(DType::BF16);
  config.attention = attention_flash;
  ClusterArgs args{.ranks = ranks, .device = "meta", .network = network, .keep_timeline = true};
  args.computed = [&](int64_t, Context& c) { return predicted_seconds(c.device.meter(), machine); };
  ClusterRun run = run_cluster(args, [&](Comm& comm) {
    Transformer model(config);
    GradientBuckets buckets(comm, model.parameters, kBucketBytes);
    AdamW optimizer(model.parameters);
    current().device.meter().reset_work();  // the clock begins with the step
    const DummyBatch batch = dummy_batch(config, kSequences, config.context, 1);
    comm.phase("forward");
    Tape tape;
    const Tensor loss = batch.loss(model);
    comm.phase("backward");
    if (overlaps) buckets.sum_during_backward();
    tape.backward(loss);
    buckets.sum();
    comm.phase("update");
    optimizer.clip_grad_norm(1.0);
    optimizer.step(1e-3);
  });
  return {run.seconds[0], std::move(run.timeline)};
}

void scaling_table(const Lesson& lesson, Report& report) {
  const Machine& machine = machine_called("A100");
  std::cout << "\n(b) GPT-2 124M in bf16, 8 sequences of 1,024 tokens a rank, " << machine.name
            << ": efficiency, t(1) / t(N)\n";
  LinePlot plot{"GPT-2 124M: efficiency of N ranks, overlapped", "ranks", "%", {}, {}};
  Table table({"network", "ranks", "computes", "sums after", "efficiency", "overlapped", "efficiency"});
  const double computes = run_step({}, 1, machine, false).seconds;
  double least = INFINITY, most = 0, best = 1;
  for (const Network& network : published_networks()) {
    plot.series.push_back({network.name, {}, {}, Series::Marks::LineAndDots});
    for (const int64_t N : {1, 2, 4, 8, 16, 32, 64}) {
      const double after = run_step(network, N, machine, false).seconds,
                   overlapped = run_step(network, N, machine, true).seconds;
      plot.series.back().x.push_back(double(N));
      plot.series.back().y.push_back(100 * computes / overlapped);
      least = std::min(least, overlapped / std::max(computes, after - computes));
      most = std::max(most, overlapped / after);
      best = std::min(best, overlapped / after);
      if (N == 8 || N == 64)
        table.row({network.name, std::to_string(N), seconds_text(computes), seconds_text(after),
                   percent_text(computes / after), seconds_text(overlapped),
                   percent_text(computes / overlapped)});
    }
  }
  std::cout << table;
  write_file(lesson.plot("17_efficiency.svg"), draw(plot));
  report.check_at_least("overlapped / the longer of computing and sending", least, 1 - 1e-9);
  report.check_at_most("overlapped / one after the other", most, 1);
  report.check_at_most("the same, where it saves most", best, 0.85);
}

void timelines(const Lesson& lesson) {
  const Machine& machine = machine_called("A100");
  const Network& network = network_called("ethernet100");
  const std::string what = "A step of GPT-2 on 4 ranks, 100 Gb/s: gradients summed ";
  const ScaledRun after = run_step(network, 4, machine, false),
                  overlapped = run_step(network, 4, machine, true);
  write_file(lesson.plot("17_after.svg"), draw_timeline(what + "afterwards", after.timeline));
  write_file(lesson.plot("17_overlapped.svg"), draw_timeline(what + "meanwhile", overlapped.timeline));
  write_trace(lesson.plot("17_overlapped.json"), overlapped.timeline);
}

}  // namespace gradus
