#include "lessons/16_fusion_and_graphs/head.h"

#include <cmath>
#include <iostream>

#include "lessons/15_flash_attention/compare.h"
#include "src/core/rng.h"
#include "src/core/table.h"
#include "src/memory/device_timing.h"
#include "src/optim/optimizer.h"
#include "src/train/dummy.h"

namespace gradus {

double norm_of_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, of_b = 0;
  for (size_t i = 0; i < b.size(); ++i) difference += (a[i] - b[i]) * (a[i] - b[i]), of_b += b[i] * b[i];
  return std::sqrt(difference / of_b);
}

Tensor random_tensor(const Shape& shape, double size, uint64_t seed, uint64_t stream) {
  Tensor x(current().device, shape, DType::F32, Kind::Weight, "x");
  if (!x.device().has_data()) return x;
  Rng rng(seed, stream);
  std::vector<double> numbers(static_cast<size_t>(shape.numel()));
  for (double& each : numbers) each = size * rng.normal();
  copy_from_host(x, numbers);
  return x;
}

static HeadRun run_head(const Lesson& lesson, const HeadSize& size, int64_t at_a_time, int repeats) {
  const LessonContext own(lesson);
  Device& device = current().device;
  Leaf of_x, of_weight;
  Tensor x = random_tensor({size.rows, size.channels}, 1, lesson.seed),
         weight = random_tensor({size.vocab, size.channels}, 0.02, lesson.seed + 1);
  const Tensor targets = random_tokens({size.rows}, size.vocab, lesson.seed + 2, "targets");
  attach(x, of_x, "x"), attach(weight, of_weight, "weight");
  HeadRun run;
  run.at_a_time = at_a_time;
  std::vector<double> seconds;
  for (int i = 0; i <= repeats; ++i) {
    if (i == 1) device.meter().reset_peak();
    of_x.zero(), of_weight.zero();
    const double start = seconds_now(device);
    Tape tape;
    const Tensor loss = at_a_time == 0 ? cross_entropy(linear(x, weight), targets)
                                       : linear_cross_entropy(x, weight, targets, {}, at_a_time);
    tape.backward(loss);
    if (i > 0) seconds.push_back(seconds_now(device) - start);
    if (device.has_data()) run.loss = to_host<double>(loss);
  }
  const Usage& peak = device.meter().at_peak();
  run.peak = peak.allocated() - peak[Kind::Workspace] - peak.rounding;
  if (!device.has_data()) return run;
  run.seconds = summarize(seconds).median;
  run.gradients = to_host<double>(of_x.grad);
  const std::vector<double> more = to_host<double>(of_weight.grad);
  run.gradients.insert(run.gradients.end(), more.begin(), more.end());
  return run;
}

std::vector<HeadRun> run_heads(const Lesson& lesson, const HeadSize& size,
                               const std::vector<int64_t>& rows_at_a_time) {
  std::vector<HeadRun> runs;
  for (const int64_t rows : rows_at_a_time) runs.push_back(run_head(lesson, size, rows, 3));
  return runs;
}

void report_heads(const std::vector<HeadRun>& runs, const HeadSize& size, Report& report) {
  std::cout << "(b) Language-model head and cross-entropy, forward and backward: " << size.rows << " rows of "
            << size.channels << " channels, " << size.vocab << " classes, fp32\n\n";
  Table table({"rows per chunk", "logits of a chunk", "peak", "time"});
  const HeadRun& all = runs.front();
  for (const HeadRun& run : runs) {
    const int64_t rows = run.at_a_time == 0 ? size.rows : run.at_a_time;
    table.row({run.at_a_time == 0 ? "all" : std::to_string(rows), bytes_text(size.logit_bytes(rows)),
               bytes_text(run.peak), time_text(run.seconds)});
    if (run.at_a_time == 0 || run.gradients.empty()) continue;
    const std::string name = "(b) chunks of " + std::to_string(rows) + " rows";
    report.check_at_most(name + ": |loss - loss with all rows|", largest_difference(run.loss, all.loss),
                         1e-6 * all.loss[0]);
    report.check_at_most(name + ": norm of the gradient difference / norm of the gradient",
                         norm_of_difference(run.gradients, all.gradients), 1e-6);
    if (&run == &runs.back())
      report.timing_at_least("(b) time, all rows / " + name.substr(4), all.seconds / run.seconds, 0.9);
  }
  std::cout << table << std::endl;
}

int64_t peak_of_step(const Lesson& lesson, const TransformerConfig& config, int64_t batch) {
  const LessonContext own(lesson, "meta", 0);
  Transformer model(config);
  AdamW optimizer(model.parameters);
  for (int step = 0; step < 2; ++step) {
    const DummyBatch data = dummy_batch(config, batch, config.context);
    model.parameters.zero_grad();
    Tape tape;
    tape.backward(data.loss(model));
    optimizer.step(1e-3);
  }
  const Usage& peak = current().device.meter().at_peak();
  return peak.allocated() - peak.rounding;
}

void report_model_peaks(const Lesson& lesson, const TransformerConfig& config, int64_t batch, int64_t rows,
                        Report& report) {
  TransformerConfig in_chunks = config;
  in_chunks.loss_rows = rows;
  const int64_t all = peak_of_step(lesson, config, batch), chunked = peak_of_step(lesson, in_chunks, batch);
  const HeadSize size{batch * config.context, config.channels, config.vocab};
  std::cout << "(c) Peak of a training step of GPT-2 124M on meta, B = " << batch
            << ", T = " << config.context << ": " << bytes_text(all) << " with all logits, "
            << bytes_text(chunked) << " in chunks of " << rows << " rows, difference "
            << bytes_text(all - chunked) << "\n\n";
  check_peaks(all, chunked, size, rows, report);
}

void check_peaks(int64_t all, int64_t chunked, const HeadSize& size, int64_t rows, Report& report) {
  // In addition to its logits, a chunk needs log-sum-exps, losses of the rows, count and dloss.
  const int64_t additional = (2 * rows + 2) * size_of(DType::F32);
  report.check_equal("(c) GPT-2 124M: bytes at the peak, all logits - chunks", all - chunked,
                     size.logit_bytes(size.rows - rows) - additional);
}

}  // namespace gradus
