// A file of golden values: a model's weights, a batch, and PyTorch's results.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/io/safetensors.h"
#include "src/nn/parameter.h"
#include "src/tensor/context.h"
#include "tests/devices.h"

namespace gradus {

struct Golden {
  explicit Golden(const char* path) : file(path) {}
  std::vector<double> read(const std::string& name, const Shape& shape) {
    std::vector<float> values(shape.numel());
    file.read(name, DType::F32, shape, values.data());
    return {values.begin(), values.end()};
  }
  Tensor read_ids(const std::string& name, const Shape& shape) {
    std::vector<int32_t> values(shape.numel());
    file.read(name, DType::I32, shape, values.data());
    return from_host(current().device, values, shape, DType::I32, Kind::Data, name);
  }
  void read_weights(Parameters& parameters) {
    for (Parameter& p : parameters) copy_from_host(p.value, read("weight." + p.name, p.value.shape()));
  }

  static double norm(const std::vector<double>& x) {
    double sum = 0;
    for (const double v : x) sum += v * v;
    return std::sqrt(sum);
  }
  static bool smaller(double a, double b) { return std::abs(a) < std::abs(b); }
  void expect_gradients(Parameters& parameters) {
    double worst = 0;
    for (Parameter& p : parameters) {
      const std::vector<double> want = read("grad." + p.name, p.value.shape()),
                                got = to_host<double>(p.leaf.grad);
      std::vector<double> difference(want.size());
      for (size_t i = 0; i < want.size(); ++i) difference[i] = got[i] - want[i];
      // Also allowed: the fp32 rounding of the gradient's terms, which are as large as the largest gradient:
      // eps times that.
      const double allowed = 1e-4 * norm(want) + 1.2e-7 * std::sqrt(double(want.size()));
      const size_t at = std::max_element(difference.begin(), difference.end(), smaller) - difference.begin();
      EXPECT_LE(norm(difference), allowed)
          << "gradient of " << p.name << " " << p.value.shape() << ": element " << at << ": expected "
          << want[at] << ", got " << got[at] << "; the norm of all elements is " << norm(want)
          << ", that of the errors " << norm(difference) << ", allowed " << allowed;
      worst = std::max(worst, norm(difference) / allowed);
    }
    ::testing::Test::RecordProperty("error / allowed error, %", std::to_string(100 * worst));
  }

  SafetensorsFile file;
};

}  // namespace gradus
