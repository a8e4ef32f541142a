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
  NoTape no_tape;
  DecisionMap map{.title = "TWO SPIRALS: PROBABILITY OF SPIRAL 1",
                  .x_min = -1.2,
                  .x_max = 1.2,
                  .y_min = -1.2,
                  .y_max = 1.2,
                  .probability = {},
                  .points = {}};
  for (size_t i = 0; i < data.label.size(); ++i)
    map.points.push_back({data.x[2 * i], data.x[2 * i + 1], int(data.label[i])});
  map.probability = [&](double x, double y) {
    const Tensor at =
        from_host(current().device, std::vector<double>{x, y}, {1, 2}, DType::F32, Kind::Data, "grid");
    return to_host<double>(softmax(logits(at)))[1];
  };
  draw(map).write_png(path);
  std::cout << "decision boundary: " << path << "\n";
}

double mlp_gradcheck(double mutant) {
  Context context("cpu");  // finite differences need fp64, which only the cpu's kernels have
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

}  // namespace gradus
