#include "lessons/13_profiler/plants.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/tensor/profile_range.h"

namespace gradus {

void load_and_read(int64_t text_bytes, uint64_t seed, int64_t step, Tensor& inputs, Tensor& targets) {
  const ProfileRange data("data");
  const auto load = [&] {
    const ProfileRange range("load text");
    return load_text("", text_bytes, seed);
  };
  const Text text = load();
  read_batch(Loader(text.corpus, inputs.shape()[1], seed), step, inputs, targets);
}

double largest_gradient(const Parameters& parameters, std::vector<float>& host) {
  const ProfileRange range("find largest gradient");
  float largest = 0;
  for (const Parameter& p : parameters) {
    host.resize(size_t(p.leaf.grad.numel()));
    current().device.copy_out(host.data(), p.leaf.grad.in().p, p.leaf.grad.bytes());
    for (const float x : host) largest = std::max(largest, std::abs(x));
  }
  return largest;
}

Tensor unfused_gelu(const Tensor& x) {
  const Tensor cubed = multiply(multiply(x, x), x);
  const Tensor t = tanh(scale(add(x, scale(cubed, 0.044715)), std::sqrt(2 / std::numbers::pi)));
  return scale(add(x, multiply(x, t)), 0.5);
}

}  // namespace gradus
