// A training whose optimizer states have limited room on the device.
#pragma once
#include <map>
#include <optional>
#include <set>

#include "src/core/rng.h"
#include "src/optim/optimizer.h"
#include "src/tensor/context.h"

namespace gradus {

constexpr int64_t kMiB = int64_t(1) << 20;
using Make = std::function<std::unique_ptr<Optimizer>(Parameters&)>;
using Shapes = std::vector<std::pair<std::string, Shape>>;
// With `room`, the context has a host, and the device has that many bytes for states.
struct Training {
  Training(const char* device, const Shapes& shapes, const Precision& precision, const Make& make,
           std::optional<int64_t> room = {})
      : context(device) {
    uint64_t stream = 0;
    for (const auto& [name, shape] : shapes) {
      Parameter& p = parameters.add(name, shape, precision);
      p.assign(numbers(shape.numel(), ++stream, 0.5));
      p.leaf.grad = Tensor(context.device, shape, precision.gradient, Kind::Gradient, name + ".grad");
    }
    if (room) leave(*room);
    optimizer = make(parameters);
  }
  // Allocates the workspace of kernels, and takes the free memory of all existing segments, except for some
  // large blocks, which are left for scratch.
  void leave(int64_t room) {
    context.add_host();
    context.device.ctx();
    take(2 * kMiB);
    for (const auto& [serial, segment] : context.device.allocator().segments())
      for (const Block* b = segment.first; b; b = b->next)
        if (segment.small && b->free && b->size > 512)  // 512 bytes are left for the optimizer's scalars
          take(std::min(b->size - 512, kMiB));
    const int64_t segments = round_up(room, 2 * kMiB);
    context.device.allocator().set_budget(context.device.meter().reserved() + segments);
    for (int64_t rest = segments - room; rest > 0; rest -= kMiB) take(std::min(rest, kMiB));
  }
  void take(int64_t bytes) {
    taken.emplace_back(context.device, Shape{bytes}, DType::U8, Kind::Other, "taken");
  }
  static std::vector<double> numbers(int64_t n, uint64_t stream, double most) {
    Rng rng(12, stream);
    std::vector<double> values(n);
    for (double& v : values) v = most * (2 * rng.uniform() - 1);
    return values;
  }
  void update(int step, double max_norm = 0, bool overflow = false) {
    context.make_current();
    uint64_t stream = 100 * uint64_t(step);
    const double scale = context.device.host_scalars().loss_scale;
    for (Parameter& p : parameters) {
      std::vector<double> values = numbers(p.value.numel(), ++stream, 0.01 * scale);
      if (overflow) values[0] = INFINITY;
      copy_from_host(p.leaf.grad, values);
      p.leaf.written = true;
    }
    if (max_norm > 0) optimizer->clip_grad_norm(max_norm);
    optimizer->step(0.01 / step);
  }
  // The bytes of all weights, master copies and states, by name.
  std::map<std::string, std::vector<char>> bits() {
    context.make_current();
    std::map<std::string, std::vector<char>> all;
    const auto add = [&](const std::string& name, const Tensor& t) {
      all[name].resize(size_t(t.bytes()));
      context.device.copy_out(all[name].data(), t.in().p, t.bytes());
    };
    for (const Parameter& p : parameters) {
      add(p.name, p.value);
      if (p.master.defined()) add(p.name + ".master", p.master);
    }
    for (const Optimizer::State& s : optimizer->states)
      for (const Tensor& t : s.tensors) add(t.storage().name(), t);
    return all;
  }
  std::set<size_t> on_device() const {  // if each parameter is a group
    std::set<size_t> there;
    for (size_t i = 0; i < optimizer->states.size(); ++i)
      if (!optimizer->states[i].tensors[0].storage().dropped()) there.insert(i);
    return there;
  }
  Pager::Moved moved() const { return optimizer->pager->moved(); }
  int64_t on_host() { return context.host->meter().now()[Kind::Optimizer]; }

  Context context;
  std::vector<Tensor> taken;
  Parameters parameters;
  std::unique_ptr<Optimizer> optimizer;
};

}  // namespace gradus
