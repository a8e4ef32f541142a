#include "lessons/16_fusion_and_graphs/pairs.h"

#include <iostream>

#include "lessons/15_flash_attention/compare.h"
#include "lessons/16_fusion_and_graphs/head.h"
#include "src/core/table.h"
#include "src/memory/device_timing.h"

namespace gradus {

// What the kernels load and store; each name stands for N = rows x channels numbers. The costs do not count
// that layernorm also loads the copy of dsum, to which it adds dx:
//                     forward                                              backward
//   add, layernorm    a, b, sum; sum, norm                                 a copy of dsum (2 N), x, dnorm, dx
//   add_layernorm     a, b, sum, norm                                      x, dnorm, dsum, dx
//   bias, gelu        h stored by the bias, loaded by the product; h, gelu h, dgelu, dh; dh
//   bias_gelu         h, gelu                                              h, dgelu, dh
std::vector<Pair> pairs(const PairSize& size) {
  const int64_t C = size.channels, N = size.rows * C;
  const Shape wide{size.rows, C}, column{C};
  return {{"residual + norm",
           {wide, wide, column, column},
           [](const std::vector<Tensor>& x) {  // the sum has two readers, as in a transformer block
             const Tensor sum = add(x[0], x[1]);
             return add(sum, layernorm(sum, x[2], x[3]));
           },
           [](const std::vector<Tensor>& x) {
             const std::vector<Tensor> both = add_layernorm(x[0], x[1], x[2], x[3]);
             return add(both[0], both[1]);
           },
           2 * N},
          {"product, then bias + gelu",
           {wide, {C, C}, column},
           [](const std::vector<Tensor>& x) { return gelu(linear(x[0], x[1], x[2])); },
           [](const std::vector<Tensor>& x) { return bias_gelu(linear(x[0], x[1]), x[2]); },
           3 * N}};
}

static PairRun run(const Lesson& lesson, const Pair& pair, bool fused) {
  constexpr int kRepeats = 9;
  const LessonContext own(lesson);
  Device& device = current().device;
  const bool has_data = device.has_data();
  std::vector<Leaf> leaves(pair.shapes.size());
  std::vector<Tensor> x;
  for (size_t i = 0; i < pair.shapes.size(); ++i) {
    x.push_back(random_tensor(pair.shapes[i], 1, lesson.seed, i));
    attach(x[i], leaves[i], std::to_string(i));
  }
  PairRun run;
  std::vector<double> seconds;
  Tensor dy;
  for (int i = 0; i <= kRepeats; ++i) {
    for (Leaf& leaf : leaves) leaf.zero();
    device.meter().reset_totals();
    const double start = seconds_now(device);
    Tape tape;
    const Tensor y = (fused ? pair.fused : pair.separate)(x);
    if (!dy.defined()) {
      dy = empty_like(y, "dy");
      be(dy).fill(ctx(dy, cost::fill(dy.numel(), DType::F32)), dy.numel(), dy.set(), 1);
    }
    tape.backward(y, dy);
    if (i > 0) seconds.push_back(seconds_now(device) - start);
    if (i == kRepeats && has_data) run.y = to_host<double>(y);
  }
  for (int c = 0; c < kOpClasses; ++c) run.moved += device.meter().totals(OpClass(c)).bytes;
  if (!has_data) return run;
  run.seconds = summarize(seconds).median;
  for (const Leaf& leaf : leaves) {
    const std::vector<double> more = to_host<double>(leaf.grad);
    run.gradients.insert(run.gradients.end(), more.begin(), more.end());
  }
  return run;
}

std::vector<ComparedPair> compare_pairs(const Lesson& lesson, const PairSize& size) {
  std::vector<ComparedPair> all;
  for (const Pair& pair : pairs(size))
    all.push_back({pair, run(lesson, pair, false), run(lesson, pair, true)});
  return all;
}

void report_pairs(const std::vector<ComparedPair>& all, const PairSize& size, Report& report) {
  std::cout << "(a) Bytes moved and time of two kernels, separate and fused by hand, forward and backward: "
            << size.rows << " rows of " << size.channels << " channels, fp32\n\n";
  Table table(
      {"operations", "moved, separate", "moved, fused", "difference", "time, separate", "time, fused"});
  for (const auto& [pair, separate, fused] : all) {
    const int64_t less = separate.moved - fused.moved;
    table.row({pair.name, bytes_text(separate.moved), bytes_text(fused.moved), bytes_text(less),
               time_text(separate.seconds), time_text(fused.seconds)});
    report.check_equal("(a) " + pair.name + ": bytes moved, separate - fused", less,
                       pair.saved_moves * size_of(DType::F32));
    if (!fused.y.empty())
      report.check_at_most("(a) " + pair.name + ": largest difference of results and gradients",
                           std::max(largest_difference(fused.y, separate.y),
                                    largest_difference(fused.gradients, separate.gradients)),
                           1e-4);
  }
  std::cout << table << std::endl;
}

}  // namespace gradus
