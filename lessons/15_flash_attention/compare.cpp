#include "lessons/15_flash_attention/compare.h"

#include <algorithm>
#include <cmath>
#include <iostream>

#include "kernels/cost.h"
#include "src/autograd/tape.h"
#include "src/core/rng.h"
#include "src/core/table.h"
#include "src/io/atomic_file.h"
#include "src/io/plot.h"
#include "src/memory/device_timing.h"

namespace gradus {

int64_t saved_by_plain(const AttentionSize& s) {
  return (s.qkv().numel() + s.B * s.heads.q * s.T * s.T) * size_of(s.dtype);
}
int64_t saved_by_flash(const AttentionSize& s) {
  // BEGIN SOLUTION 15.2
  return (s.qkv().numel() + s.y().numel()) * size_of(s.dtype) + s.B * s.heads.q * s.T * size_of(DType::F32);
  // STUB: todo("15.2", "bytes of qkv, y and the log-sum-exps, which are fp32", s.B, s.T, s.D);
  // END SOLUTION 15.2
}

AttentionShape AttentionSize::shape() const {
  return {.B = B,
          .H = heads.q,
          .KV = heads.kv,
          .T = T,
          .D = D,
          .qkv = {qkv()[1] * qkv()[2], D, qkv()[2]},
          .y = {y()[1] * y()[2], D, y()[2]},
          .scale = 1 / std::sqrt(float(D))};
}

static Tensor random_tensor(const Shape& shape, DType t, uint64_t seed, const char* name) {
  Rng rng(seed, 0);
  std::vector<double> x(size_t(shape.numel()));
  for (double& each : x) each = bf16(float(rng.normal()));  // which every dtype holds, but for fp16's range
  return from_host(current().device, x, shape, t, Kind::Temporary, name);
}

AttentionInput::AttentionInput(const AttentionSize& size, uint64_t seed)
    : qkv(random_tensor(size.qkv(), size.dtype, seed, "qkv")),
      dy(random_tensor(size.y(), size.dtype, seed + 1, "dy")) {
  attach(qkv, leaf, "qkv");
}

AttentionRun run_attention(const Lesson& lesson, const std::string& name, AttentionOp op,
                           const AttentionSize& size, int repeats) {
  const LessonContext own(lesson, name, 0);
  Device& device = current().device;
  AttentionInput input(size, lesson.seed);
  AttentionRun run{};
  std::vector<double> forward, backward;
  for (int i = 0; i <= repeats; ++i) {
    input.leaf.zero();
    Tape tape;
    const double start = seconds_now(device);
    const Tensor y = op(input.qkv, size.heads, Mask::Causal, 0, 0);
    forward.push_back(seconds_now(device) - start);
    run.saved = tape.saved_bytes();
    if (i == repeats && device.has_data()) run.y = to_host<double>(y);
    const double again = seconds_now(device);
    tape.backward(y, input.dy);
    backward.push_back(seconds_now(device) - again);
  }
  forward.erase(forward.begin()), backward.erase(backward.begin());
  run.forward = device.has_data() ? summarize(forward).median : NAN;
  run.backward = device.has_data() ? summarize(backward).median : NAN;
  if (device.has_data()) run.dqkv = to_host<double>(input.leaf.grad);
  const Usage& peak = device.meter().at_peak();
  run.peak = peak.allocated() - peak[Kind::Vendor];
  return run;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  check(a.size() == b.size(), "compare: ", a.size(), " numbers and ", b.size());
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i)
    if (const double difference = std::abs(a[i] - b[i]); !(difference <= most)) most = difference;
  return most;
}

static double largest(const std::vector<double>& x) {
  return largest_difference(x, std::vector<double>(x.size()));
}

std::vector<ByLength> compare_lengths(const Lesson& lesson, AttentionSize size,
                                      const std::vector<int64_t>& lengths, int64_t longest_plain) {
  constexpr int kRepeats = 3;
  std::vector<ByLength> all;
  for (const int64_t T : lengths) {
    size.T = T;
    const std::string plain_on = T <= longest_plain ? lesson.device : "meta";
    all.push_back({size, run_attention(lesson, plain_on, attention_plain, size, kRepeats),
                   run_attention(lesson, lesson.device, attention_flash, size, kRepeats)});
  }
  return all;
}

static std::string time_text(double seconds) { return std::isnan(seconds) ? "-" : seconds_text(seconds); }

void report_lengths(const std::vector<ByLength>& all, const std::string& picture, Report& report) {
  const AttentionSize& first = all.front().size;
  std::cout << "(c) Attention of " << first.heads.q << " heads of " << first.D << ", " << name_of(first.dtype)
            << ": forward and backward\n\n";
  Table table(
      {"T", "saved: plain", "flash", "peak: plain", "flash", "time: plain", "flash", "GFLOP/s: flash"});
  Series plain_bytes{"plain", {}, {}}, flash_bytes{"flash", {}, {}};
  int64_t different = 0, nonlinear = 0;
  for (const auto& [size, plain, flash] : all) {
    const int64_t flops = cost::attention_flash_fwd(size.shape(), size.dtype).flops +
                          cost::attention_flash_bwd(size.shape(), size.dtype).flops;
    const double rate = double(flops) / flash.seconds() / 1e9;
    table.row({count_text(size.T), bytes_text(plain.saved), bytes_text(flash.saved), bytes_text(plain.peak),
               bytes_text(flash.peak), time_text(plain.seconds()), time_text(flash.seconds()),
               std::isnan(rate) ? "-" : number_text(rate)});
    different += std::abs(plain.saved - saved_by_plain(size)) + std::abs(flash.saved - saved_by_flash(size));
    nonlinear += std::abs(flash.saved * first.T - all.front().flash.saved * size.T);
    for (Series* s : {&plain_bytes, &flash_bytes}) s->x.push_back(double(size.T));
    plain_bytes.y.push_back(double(plain.saved) / 0x1p20),
        flash_bytes.y.push_back(double(flash.saved) / 0x1p20);
  }
  std::cout << table << std::endl;
  report.check_equal("saved bytes unlike the formulas", different, 0);
  report.check_equal("flash: saved bytes that are not linear in T", nonlinear, 0);
  const ByLength* longest = nullptr;
  for (const ByLength& each : all)
    if (!std::isnan(each.plain.seconds())) longest = &each;
  if (longest)
    report.timing_at_least("time of plain ÷ flash, T = " + std::to_string(longest->size.T),
                           longest->plain.seconds() / longest->flash.seconds(), 1);
  if (!picture.empty())
    write_file(picture, draw(LinePlot{"What one call of attention saves for its backward",
                                      "T, tokens",
                                      "MiB",
                                      {plain_bytes, flash_bytes},
                                      {}}));
}

void report_errors(const Lesson& lesson, const AttentionSize& like, Report& report) {
  std::cout << "(d) Largest difference from attention in fp64, " << like.heads.q << " heads of " << like.D
            << ", T = " << like.T << "\n\n";
  Table table({"numbers", "y: plain", "flash", "gradients: plain", "flash"});
  for (const DType t : {DType::F32, DType::BF16}) {
    AttentionSize size = like;
    size.dtype = t;
    const AttentionRun plain = run_attention(lesson, lesson.device, attention_plain, size, 1),
                       flash = run_attention(lesson, lesson.device, attention_flash, size, 1);
    size.dtype = DType::F64;
    const AttentionRun exact = run_attention(lesson, "cpu", attention_plain, size, 1);
    const double y[] = {largest_difference(plain.y, exact.y), largest_difference(flash.y, exact.y)};
    const double d[] = {largest_difference(plain.dqkv, exact.dqkv),
                        largest_difference(flash.dqkv, exact.dqkv)};
    table.row({name_of(t), number_text(y[0]), number_text(y[1]), number_text(d[0]), number_text(d[1])});
    // Twice plain's error, as the authors of flash attention test theirs, and the log-sum-exp's: it is at
    // most about 8 here and rounded once to fp32, which changes each weight by its share.
    constexpr double kRounded = 8 * 0x1p-24;
    const std::string what = std::string(" in ") + name_of(t) + ", error of flash";
    report.check_at_most("y" + what, y[1], 2 * y[0] + kRounded * largest(exact.y));
    report.check_at_most("gradients" + what, d[1], 2 * d[0] + kRounded * largest(exact.dqkv));
  }
  std::cout << table << std::endl;
}

void report_groups(const Lesson& lesson, AttentionSize size, Report& report) {
  std::cout << "(e) " << size.heads.q
            << " heads of queries that share heads of keys and values, T = " << size.T << ", flash\n\n";
  Table table({"heads of k and v", "queries to one", "bytes of k and v", "saved", "time"});
  int64_t different = 0;
  for (const int64_t group : {1, 2, 8}) {
    size.heads.kv = size.heads.q / group;
    const AttentionRun run = run_attention(lesson, lesson.device, attention_flash, size, 3);
    table.row({count_text(size.heads.kv), count_text(group),
               bytes_text(2 * size.B * size.T * size.heads.kv * size.D * size_of(size.dtype)),
               bytes_text(run.saved), time_text(run.seconds())});
    different += std::abs(run.saved - saved_by_flash(size));
  }
  std::cout << table << std::endl;
  report.check_equal("saved bytes with shared heads unlike the formula", different, 0);
}

}  // namespace gradus
