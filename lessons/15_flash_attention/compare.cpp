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
  // STUB: todo("15.2", "bytes of qkv, y and the log-sum-exps", s.B, s.T, s.D);
  // END SOLUTION 15.2
}

static Tensor random_tensor(const Shape& shape, DType t, uint64_t seed, const char* name) {
  Rng rng(seed, 0);
  std::vector<double> x(size_t(shape.numel()));
  for (double& each : x) each = bf16(float(rng.normal()));  // bf16 numbers are exact in every dtype but fp16
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
  AttentionRun run;
  std::vector<double> seconds;
  for (int i = 0; i <= repeats; ++i) {
    input.leaf.zero();
    Tape tape;
    const double start = seconds_now(device);
    const Tensor y = op(input.qkv, size.heads, Mask::Causal, 0, 0);
    run.saved = tape.saved_bytes();
    tape.backward(y, input.dy);
    if (i > 0) seconds.push_back(seconds_now(device) - start);
    if (i == repeats && device.has_data())
      run.seconds = summarize(seconds).median, run.y = to_host<double>(y);
  }
  if (device.has_data()) run.dqkv = to_host<double>(input.leaf.grad);
  const Usage& peak = device.meter().at_peak();
  run.peak = peak.allocated() - peak[Kind::Workspace];
  return run;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  check(a.size() == b.size(), "largest_difference: ", a.size(), " numbers and ", b.size(), " numbers");
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i)
    if (const double difference = std::abs(a[i] - b[i]); std::isnan(difference) || difference > most)
      most = difference;
  return most;
}

static double largest(const std::vector<double>& x) {
  return largest_difference(x, std::vector<double>(x.size()));
}

std::vector<Compared> compare(const Lesson& lesson, const std::vector<AttentionSize>& sizes,
                              int64_t longest_plain) {
  constexpr int kRepeats = 3;
  std::vector<Compared> all;
  for (const AttentionSize& size : sizes)
    all.push_back({size,
                   run_attention(lesson, size.T <= longest_plain ? lesson.device : "meta", attention_plain,
                                 size, kRepeats),
                   run_attention(lesson, lesson.device, attention_flash, size, kRepeats)});
  return all;
}

std::string time_text(double seconds) { return std::isnan(seconds) ? "-" : seconds_text(seconds); }

void report_compared(const std::vector<Compared>& all, const std::string& picture, Report& report) {
  const AttentionSize& first = all.front().size;
  std::cout << "(c) Memory (saved for backward; peak, without workspace) and time of forward + backward: "
            << first.heads.q << " query heads, D = " << first.D << ", " << name_of(first.dtype)
            << ", causal mask (-: ran on meta)\n\n";
  Table table({"T", "KV heads", "saved, plain", "saved, flash", "peak, plain", "peak, flash", "time, plain",
               "time, flash"});
  Series plain_bytes{"plain", {}, {}}, flash_bytes{"flash", {}, {}};
  int64_t different = 0, nonlinear = 0;
  const Compared* longest = nullptr;  // the longest sequence on which both were timed
  for (const Compared& each : all) {
    const auto& [size, plain, flash] = each;
    table.row({count_text(size.T), count_text(size.heads.kv), bytes_text(plain.saved),
               bytes_text(flash.saved), bytes_text(plain.peak), bytes_text(flash.peak),
               time_text(plain.seconds), time_text(flash.seconds)});
    different += std::abs(plain.saved - saved_by_plain(size)) + std::abs(flash.saved - saved_by_flash(size));
    if (size.heads.kv != first.heads.kv) continue;
    nonlinear += std::abs(flash.saved * first.T - all.front().flash.saved * size.T);
    for (Series* s : {&plain_bytes, &flash_bytes}) s->x.push_back(double(size.T));
    plain_bytes.y.push_back(double(plain.saved) / double(size.B * size.T) / 0x1p10);
    flash_bytes.y.push_back(double(flash.saved) / double(size.B * size.T) / 0x1p10);
    if (!std::isnan(plain.seconds)) longest = &each;
  }
  std::cout << table << std::endl;
  report.check_equal("(c) saved bytes: sum of differences from the formulas", different, 0);
  report.check_equal("(c) flash: sum over T of |T0 saved(T) - T saved(T0)|, T0 = first row", nonlinear, 0);
  if (longest)
    report.timing_at_least("(c) time, plain / flash, T = " + std::to_string(longest->size.T),
                           longest->plain.seconds / longest->flash.seconds, 1);
  LinePlot plot{
      "Memory that attention saves for backward", "T, tokens per sequence", "KiB per token", {}, {}};
  plot.series = {plain_bytes, flash_bytes};
  if (!picture.empty()) write_file(picture, draw(plot));
}

std::vector<AttentionErrors> measure_errors(const Lesson& lesson, const AttentionSize& like) {
  std::vector<AttentionErrors> errors;
  for (const DType t : {DType::F32, DType::BF16}) {
    AttentionSize size = like;
    size.dtype = t;
    const AttentionRun plain = run_attention(lesson, lesson.device, attention_plain, size, 1),
                       flash = run_attention(lesson, lesson.device, attention_flash, size, 1);
    size.dtype = DType::F64;
    const AttentionRun exact = run_attention(lesson, "cpu", attention_plain, size, 1);
    const auto error = largest_difference;
    errors.push_back({t,
                      {error(plain.y, exact.y), error(plain.dqkv, exact.dqkv)},
                      {error(flash.y, exact.y), error(flash.dqkv, exact.dqkv)},
                      {largest(exact.y), largest(exact.dqkv)}});
  }
  return errors;
}

void report_errors(const AttentionSize& size, const std::vector<AttentionErrors>& errors, Report& report) {
  std::cout << "(d) Largest difference from attention in fp64, T = " << size.T << "\n\n";
  Table table({"format", "y, plain", "y, flash", "gradients, plain", "gradients, flash"});
  for (const AttentionErrors& e : errors) {
    table.row({name_of(e.dtype), number_text(e.plain[0]), number_text(e.flash[0]), number_text(e.plain[1]),
               number_text(e.flash[1])});
    // Allowed: twice the error of plain (the tests of the flash attention authors allow 2 times for y, 3
    // times for gradients), plus the rounding error of the log-sum-exp. The log-sum-exp is at most 8 here and
    // is rounded once to fp32; this changes each weight by a relative error of 8 / 2^24.
    constexpr double kRounded = 8 * 0x1p-24;
    for (const int i : {0, 1})
      report.check_at_most(
          std::string("(d) ") + (i == 0 ? "y" : "gradients") + " in " + name_of(e.dtype) + ": error of flash",
          e.flash[i], 2 * e.plain[i] + kRounded * e.largest[i]);
  }
  std::cout << table << std::endl;
}

void check_training(const TransformerConfig& model, int64_t batch, const Trained& plain, const Trained& flash,
                    Report& report) {
  report.check_at_most("GPT: largest difference of losses, plain - flash",
                       largest_difference(flash.losses, plain.losses), 1e-4);
  // Per query plain saves T weights, flash one log-sum-exp. y makes no difference: the linear layer after
  // attention saves y in both models.
  const int64_t queries = batch * model.heads * model.context;
  report.check_equal("GPT: activation bytes at the peak, plain - flash",
                     plain.activations - flash.activations,
                     model.layers * queries * (model.context - 1) * size_of(DType::F32));
}

}  // namespace gradus
