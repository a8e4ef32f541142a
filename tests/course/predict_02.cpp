// The questions of exercise 02.5: the FLOPs of a deeper network with the student's own numbers, counted on
// meta.
#include <deque>

#include "src/nn/layers.h"
#include "tests/course/predict.h"

namespace gradus::predict {

struct Net {  // 2 -> width -> … -> width -> 2, with tanh between
  int64_t layers, width, points;
};

static Net own_net(const std::string& student) {
  Own own(student, "02.5");
  return {own.between(4, 9), own.between(20, 200), own.between(100, 900)};
}

// Of all products of one pass.
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
    meta.device.meter().reset_work();
    tape.backward(loss);
  }
  return double(meta.device.meter().work(OpClass::Contraction).flops);
}

static Quiz quiz(const std::string& student) {
  const Net net = own_net(student);
  std::ostringstream setting;
  setting << "Your network has " << net.layers << " linear layers with tanh between them: 2 -> " << net.width
          << ", then " << net.layers - 2 << " of " << net.width << " -> " << net.width << ", then "
          << net.width << " -> 2; it sees " << net.points
          << " points at once. Count the products' operations, as the page does.";
  const auto flops = [net](bool backward) { return measured([=] { return flops_of(backward, net); }); };
  return {setting.str(),
          {{"02.5", "forward", "how many FLOPs does the forward pass take?", flops(false)},
           {"02.5", "backward", "how many FLOPs does the backward pass take?", flops(true)}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "02", gradus::predict::quiz); }
