// Lesson 02, autograd. A tape records each operation of the forward pass. The backward pass runs the tape in
// reverse and computes the gradient of the loss with respect to every parameter. Here the tape trains a small
// network to separate two spirals.
//
// Operations: a linear layer with R rows takes 2·R·in·out FLOPs in the forward pass and twice as many in the
// backward pass (dx = dy W and dW = dy^T x). The first layer's dx is not computed, so the ratio is below 2.
//
//   make lesson-02                        expected last line: PASS
#include <cmath>
#include <iostream>

#include "lessons/02_autograd/by_hand.h"
#include "lessons/02_autograd/spirals.h"
#include "src/core/progress.h"
#include "src/core/rng.h"
#include "src/memory/device_timing.h"
#include "src/nn/layers.h"
#include "src/optim/optimizer.h"
#include "src/train/lesson.h"

using namespace gradus;

struct Settings {
  int64_t points = 512, hidden = 64;
  double learning_rate = 0.01;
};

struct Mlp {  // 2 -> hidden -> hidden -> 2, with tanh between
  Mlp(Parameters& p, int64_t hidden)
      : l1(p, "l1", 2, hidden), l2(p, "l2", hidden, hidden), l3(p, "l3", hidden, 2) {}
  Tensor operator()(const Tensor& x) const { return l3(tanh(l2(tanh(l1(x))))); }
  Linear l1, l2, l3;
};

// Weights are uniform in ±sqrt(3/in), so their standard deviation is 1/sqrt(in), as in LeCun et al. 1998
// (Efficient backprop, sec. 4.6). Biases start at 0.
static void initialize(Parameters& parameters, uint64_t seed) {
  uint64_t stream = 100;
  for (Parameter& p : parameters) {
    Rng rng(seed, stream++);
    std::vector<double> values(p.value.numel(), 0.0);
    if (p.decay)
      for (double& v : values) v = (2 * rng.uniform() - 1) * std::sqrt(3.0 / double(p.value.last()));
    copy_from_host(p.value, values);
  }
}

static double accuracy_of(const Mlp& model, const Tensor& x, const std::vector<int32_t>& label) {
  if (!current().device.has_data()) return NAN;
  NoTape no_tape;
  const std::vector<float> logits = to_host<float>(model(x));
  int64_t correct = 0;
  for (size_t i = 0; i < label.size(); ++i) correct += (logits[2 * i + 1] > logits[2 * i]) == (label[i] == 1);
  return double(correct) / double(label.size());
}

struct Run {  // the results of training
  std::vector<double> forward_s, backward_s, losses;
  int64_t forward_flops = 0, backward_flops = 0;  // of the last step
};

static Run train(const Lesson& lesson, const Settings& set, Parameters& parameters, const Mlp& model,
                 const Tensor& x, const Tensor& label) {
  Device& device = current().device;
  Meter& meter = device.meter();
  AdamW optimizer(parameters);
  Run run;
  Progress progress("training", lesson.steps);
  for (int64_t step = 0; step < lesson.steps; ++step) {
    const double start = seconds_now(device);
    meter.reset_totals();
    Tape tape;
    const Tensor loss = cross_entropy(model(x), label);
    run.forward_flops = meter.totals(OpClass::Contraction).flops;
    run.losses.push_back(item(loss));
    if (step == 0 && lesson.print == "tape") tape.print(std::cout);
    const double middle = seconds_now(device);
    parameters.zero_grad();
    tape.backward(loss);
    run.backward_flops = meter.totals(OpClass::Contraction).flops - run.forward_flops;
    run.forward_s.push_back(middle - start);
    run.backward_s.push_back(seconds_now(device) - middle);
    optimizer.step(set.learning_rate * (1 - double(step) / double(lesson.steps)));
    progress.step(step + 1, run.losses.back());
  }
  progress.done();
  return run;
}

static int lesson_02(int argc, char** argv) {
  Lesson lesson(argc, argv, "02_autograd", "trains a small network with gradients from a tape", 1000);
  const std::string picture = lesson.device == "meta" ? "" : lesson.plot("02_boundary.png");
  lesson.done({}, {picture});
  if (lesson.print == "example") return gradients_by_hand(std::cout), 0;
  LessonContext context(lesson);
  const Settings set;
  const Spirals data(set.points, lesson.seed);
  const Tensor x = from_host(context.device, data.x, {set.points, 2}, DType::F32, Kind::Data, "points");
  const Tensor label = from_host(context.device, data.label, {set.points}, DType::I32, Kind::Data, "labels");
  Parameters parameters;
  const Mlp model(parameters, set.hidden);
  initialize(parameters, lesson.seed);
  const Run run = train(lesson, set, parameters, model, x, label);
  if (context.device.has_data()) draw_boundary([&](const Tensor& at) { return model(at); }, data, picture);

  Report report = lesson.report();
  report.config("points", set.points);
  report.config("hidden", set.hidden);
  report.config("steps", lesson.steps);
  const double accuracy = accuracy_of(model, x, data.label);
  const double forward = summarize(run.forward_s).median, backward = summarize(run.backward_s).median;
  ReportRow& row = report.row("mlp");
  row.ms_per_step = (forward + backward) * 1e3;
  row.loss_first = run.losses.front();
  row.loss_last = run.losses.back();
  row.peak = context.device.meter().at_peak();
  row.reserved_bytes = context.device.meter().peak_reserved();
  row.extra = {{"accuracy", accuracy}, {"backward time / forward time", backward / forward}};
  report.predict_time(1);  // each step resets the meter, so it has counted the last step only
  check_run({run.forward_flops, run.backward_flops, mlp_gradcheck(1.0), mlp_gradcheck(1.01), accuracy,
             backward / forward},
            set.points, set.hidden, lesson.steps, report);
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_02(argc, argv); });
}
