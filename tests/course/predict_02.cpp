// The questions of exercise 02.4 (the FLOPs of a deeper network with the student's own numbers, counted on
// meta) and of exercise 02.1 (a tape to trace by hand).
#include <deque>

#include "src/nn/layers.h"
#include "tests/course/predict.h"

namespace gradus::predict {

struct Net {  // 2 -> width -> … -> width -> 2, with tanh between
  int64_t layers, width, points;
};

static Net own_net(const std::string& student) {
  Own own(student, "02.4");
  return {own.between(4, 9), own.between(20, 200), own.between(100, 900)};
}

// The FLOPs of all matrix products of one pass.
static double flops_of(bool backward, const Net& net) {
  Context meta("meta");
  Parameters parameters;
  std::deque<Linear> layers;
  for (int64_t i = 0; i < net.layers; ++i)
    layers.emplace_back(parameters, std::to_string(i), i == 0 ? 2 : net.width,
                        i == net.layers - 1 ? 2 : net.width);
  const Tensor label(meta.device, {net.points}, DType::I32, Kind::Data, "labels");
  Tensor x(meta.device, {net.points, 2}, DType::F32, Kind::Data, "points");
  Tape tape;
  for (int64_t i = 0; i < net.layers; ++i) x = layers[size_t(i)](i == 0 ? x : tanh(x));
  const Tensor loss = cross_entropy(x, label);
  if (backward) {
    meta.device.meter().reset_totals();
    tape.backward(loss);
  }
  return double(meta.device.meter().totals(OpClass::Contraction).flops);
}

struct Trace {  // b = w a, c = s b, d = b + c, e = d b: a tape of four nodes, three of which read b
  int64_t a, w, s;
};

static Trace own_trace(const std::string& student) {
  Own own(student, "02.1");
  return {own.between(2, 9), own.between(2, 9), own.between(2, 9)};
}

// e, computed by the forward pass alone, so it does not need a solved exercise.
static double e_of_b(const Trace& t, double b) {
  const Context context("cpu");
  const Tensor x = from_host(current().device, std::vector<double>{b}, {1, 1}, DType::F64, Kind::Data, "b");
  return item(linear(add(x, scale(x, double(t.s))), x));
}

// A central difference, which is exact here, because e is quadratic in a, b and w.
static double slope(const std::function<double(double)>& e, int64_t at) {
  return (e(double(at + 1)) - e(double(at - 1))) / 2;
}

static Quiz quiz(const std::string& student) {
  const Net net = own_net(student);
  const Trace t = own_trace(student);
  std::ostringstream setting, tape;
  setting << "Your network has " << net.layers << " linear layers with tanh between them: 2 -> " << net.width
          << ", then " << net.layers - 2 << " of " << net.width << " -> " << net.width << ", then "
          << net.width << " -> 2; it sees " << net.points
          << " points per step. Count the FLOPs of the matrix products only, as the page does.";
  tape << "Your tape: a = " << t.a << " and w = " << t.w << " are leaves; b = w a, c = " << t.s
       << " b, d = b + c, e = d b. The gradient of e is 1. What is the gradient of b, the sum of all "
          "gradients for its slot?";
  const auto flops = [net](bool backward) { return measured([=] { return flops_of(backward, net); }); };
  return {setting.str(),
          {{"02.4", "forward", "how many FLOPs does the forward pass take?", flops(false)},
           {"02.4", "backward", "how many FLOPs does the backward pass take?", flops(true)},
           {"02.1", "db", tape.str(),
            measured([t] { return slope([t](double b) { return e_of_b(t, b); }, t.a * t.w); })},
           {"02.1", "da", "what is the gradient of a?",
            measured([t] { return slope([t](double a) { return e_of_b(t, a * double(t.w)); }, t.a); })},
           {"02.1", "dw", "what is the gradient of w?",
            measured([t] { return slope([t](double w) { return e_of_b(t, double(t.a) * w); }, t.w); })}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "02", gradus::predict::quiz); }
