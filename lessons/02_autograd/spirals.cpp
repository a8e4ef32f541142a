#include "lessons/02_autograd/spirals.h"

#include <cmath>
#include <iostream>

#include "src/autograd/gradcheck.h"
#include "src/core/rng.h"
#include "src/io/png.h"
#include "src/ops/ops.h"
#include "src/tensor/context.h"

namespace gradus {

Spirals::Spirals(int64_t points, uint64_t seed) {
  Rng rng(seed, 1);
  for (int64_t i = 0; i < points; ++i) {
    const double t = 0.25 + 2.75 * rng.uniform(), angle = 1.75 * t * M_PI / 1.5 + (i % 2) * M_PI;
    x.push_back(float(t / 3 * std::cos(angle) + 0.02 * rng.normal()));
    x.push_back(float(t / 3 * std::sin(angle) + 0.02 * rng.normal()));
    label.push_back(int32_t(i % 2));
  }
}

void draw_boundary(const std::function<Tensor(const Tensor&)>& logits, const Spirals& data,
                   const std::string& path) {
  constexpr int kSide = 320, kCell = 4;  // pixels per side of the picture, and of a cell with one probability
  constexpr double kReach = 1.2;         // both axes run from -kReach to kReach
  NoTape no_tape;
  Image image(kSide, kSide);
  for (int y = 0; y < kSide; y += kCell) {  // one row of cells at a time, to need less memory than training
    std::vector<float> places;
    for (int x = 0; x < kSide; x += kCell)
      for (const double v : {double(x), double(kSide - y)})  // y points up
        places.push_back(float((2 * v / kSide - 1) * kReach));
    const Tensor at =
        from_host(current().device, places, {kSide / kCell, 2}, DType::F32, Kind::Data, "plane");
    const std::vector<double> p = to_host<double>(softmax(logits(at)));
    for (int i = 0; i < kCell * kSide; ++i) {
      const int x = i % kSide;
      image.set(x, y + i / kSide, {150, 190, 235});
      image.set(x, y + i / kSide, {250, 195, 140}, p[size_t(x / kCell * 2 + 1)]);
    }
  }
  const auto pixel = [&](float v) { return (v / kReach + 1) / 2 * kSide; };
  for (size_t i = 0; i < data.label.size(); ++i) {
    const double x = pixel(data.x[2 * i]), y = kSide - pixel(data.x[2 * i + 1]);
    image.disc(x, y, 4, {255, 255, 255});
    image.disc(x, y, 3, data.label[i] == 1 ? Rgb{225, 110, 20} : Rgb{31, 99, 180});
  }
  image.write_png(path);
  std::cout << "decision boundary: " << path << "\n";
}

double mlp_gradcheck(double mutant) {
  Context context("cpu");  // finite differences need fp64, which only the CPU's kernels support
  const auto mlp = [](const std::vector<Tensor>& in) {
    const Tensor h = tanh(linear(in[0], in[1], in[2]));
    return cross_entropy(linear(h, in[3]), from_host(current().device, std::vector<int32_t>{0, 1, 1, 0, 1},
                                                     {5}, DType::I32, Kind::Data, "labels"));
  };
  std::vector<GradcheckInput> inputs;
  Rng rng(7, 2);
  for (const Shape& shape : {Shape{5, 2}, Shape{7, 2}, Shape{7}, Shape{2, 7}}) {
    inputs.push_back({shape, {}});
    for (int64_t i = 0; i < shape.numel(); ++i) inputs.back().values.push_back(rng.normal());
  }
  return gradcheck(mlp, inputs, 1, mutant, 1).worst;
}

void check_run(const MlpRun& m, int64_t R, int64_t H, int64_t steps, Report& report) {
  report.check_equal("FLOPs of the forward pass (matrix products)", m.forward_flops,
                     2 * R * (2 * H + H * H + 2 * H));
  report.check_equal("FLOPs of the backward pass (matrix products)", m.backward_flops,
                     2 * m.forward_flops - 2 * R * 2 * H);
  report.check_at_most("gradient check: largest error / allowed error", m.gradcheck, 1.0);
  report.check_at_least("gradient check of a gradient 1 % too large: largest error / allowed error",
                        m.wrong_gradcheck, 1.0);
  report.check_at_least("accuracy on the training points", m.accuracy, 0.98, needs_steps(1000, steps));
  report.timing_at_least("backward time / forward time", m.backward_per_forward, 1.0);
}

}  // namespace gradus
