#include "src/optim/optimizer.h"

#include <cmath>
#include <numbers>

#include "src/tensor/context.h"

namespace gradus {

static void fill_with_zeros(Tensor& t) {
  if (t.dtype() != DType::U8)
    be(t).fill(ctx(t, cost::fill(t.numel(), t.dtype())), t.numel(), t.set(), 0.0);
  else if (t.device().has_data())  // codes; kernels fill numbers only
    t.device().copy_in(t.set().p, std::vector<char>(size_t(t.bytes())).data(), t.bytes());
}

constexpr int64_t kGroupBytes = int64_t(1) << 20;  // of states that go to the host together, at least

Optimizer::Optimizer(Parameters& parameters, std::function<States(const Parameter&)> of)
    : states_of(std::move(of)) {
  Context& context = current();
  if (context.host) pager.emplace(context.device, *context.host);
  int64_t bytes = 0;  // of the present group
  for (Parameter& p : parameters) {
    if (!p.trainable()) continue;
    if (states.empty() || (pager && bytes >= kGroupBytes)) {
      groups_.push_back(states.size()), bytes = 0;
      if (pager) pager->done();  // the group before may go
    }
    State& state = states.emplace_back(State{&p, {}});
    for (const StateSpec& spec : states_of(p)) {
      Tensor t(p.value.device(), spec.shape, spec.dtype, Kind::Optimizer, p.name + "." + spec.name);
      fill_with_zeros(t);
      if (pager) pager->add(t, groups_.size() - 1);
      bytes += t.bytes();
      state.tensors.push_back(std::move(t));
    }
  }
  groups_.push_back(states.size());
  if (pager) pager->done();
}

void Optimizer::step(double learning_rate) {
  check(!states.empty(), "optimizer: no parameter is trainable");
  for (const State& s : states)  // before anything counts as written
    check(!s.parameter->leaf.empty, "optimizer: parameter '", s.parameter->name,
          "' has no gradient; call backward() before step()");
  Device& device = states[0].parameter->value.device();
  const bool scaled = device.host_scalars().growth_interval > 0;
  check(!scaled || device.norm_asked, "optimizer: with loss scaling, call clip_grad_norm() before step(); ",
        "it finds overflows (a maximum of 0 clips nothing)");
  device.set(&StepScalars::learning_rate, float(learning_rate));
  const Tensor& any = states[0].parameter->value;
  if (scaled)
    be(any).begin_update(ctx(any, {OpClass::Elementwise}));
  else
    device.set(&StepScalars::updates, device.host_scalars().updates + 1);
  for (size_t g = 0; g + 1 < groups_.size(); ++g) {
    if (pager) pager->use(g);
    update_group(groups_[g], groups_[g + 1]);
  }
  if (pager) pager->done();
  device.set(&StepScalars::clip_factor, 1.0f);
  device.norm_asked = false;
  device.set(&StepScalars::step, device.host_scalars().step + 1);
}

void Optimizer::update_group(size_t first, size_t end) {
  std::vector<ParamUpdate> updates;
  for (size_t i = first; i < end; ++i) {
    State& s = states[i];
    Parameter& p = *s.parameter;
    ParamUpdate u{.n = p.value.numel(),
                  .value = p.value.set(),
                  .grad = p.leaf.grad.in(),
                  .m = {},
                  .v = {},
                  .master = p.master.defined() ? p.master.set() : Out{},
                  .decay = p.decay,
                  .rows = p.value.shape().rank() > 1 ? p.value.rows().rows : 1};
    if (s.tensors.size() > 0) u.m = s.tensors[0].set();
    if (s.tensors.size() > 1) u.v = s.tensors[1].set();
    if (s.tensors.size() > 2) u.m_scales = s.tensors[2].set(), u.v_scales = s.tensors[3].set();
    updates.push_back(u);
  }
  update(states[first].parameter->value, first, {int64_t(updates.size()), updates.data()});
}

StateSpec like(const Parameter& p, const char* name) { return {name, p.value.shape(), p.precision.state}; }

Sgd::Sgd(Parameters& parameters, SgdArgs args)
    : Optimizer(
          parameters,
          [args](const Parameter& p) { return args.momentum != 0 ? States{like(p, "momentum")} : States{}; }),
      args_(args) {}
void Sgd::update(const Tensor& any, size_t, ParamList list) {
  be(any).sgd(ctx(any, cost::sgd(list)), list, args_);
}

Optimizer::States adamw_states(const Parameter& p) { return {like(p, "m"), like(p, "v")}; }
void adamw(const Tensor& any, ParamList list, const AdamWArgs& args) {
  be(any).adamw(ctx(any, cost::adamw(list)), list, args);
}

AdamW::AdamW(Parameters& parameters, AdamWArgs args) : Optimizer(parameters, adamw_states), args_(args) {}
void AdamW::update(const Tensor& any, size_t, ParamList list) { adamw(any, list, args_); }

void check_whole(const char* optimizer, const Parameter& p) {
  check(p.whole == 0, optimizer, ": '", p.name, "' is a shard of a parameter of ", p.whole,
        " elements, and its update needs whole matrices; take AdamW, SGD or AdamW8bit");
}

Adafactor::Adafactor(Parameters& parameters, AdafactorArgs args)
    : Optimizer(parameters,
                [](const Parameter& p) {
                  check_whole("adafactor", p);
                  const DType t = statistics_dtype(p.value.dtype());
                  if (p.value.shape().rank() < 2) return States{{"squares", p.value.shape(), t}};
                  return States{{"columns", {p.value.last()}, t}, {"rows", {p.value.rows().rows}, t}};
                }),
      args_(args) {}
void Adafactor::update(const Tensor& any, size_t, ParamList list) {
  be(any).adafactor(ctx(any, cost::adafactor(list, args_.step_size)), list, args_);
}

GradientList gradients_of(const Parameters& parameters) {
  GradientList grads;
  for (const Parameter& p : parameters) {
    if (!p.trainable() || p.leaf.empty) continue;
    grads.items.push_back(p.leaf.grad.in());
    grads.sizes.push_back(p.value.numel());
    grads.elements += grads.sizes.back();
  }
  return grads;
}

void clip_grad_norm(Parameters& parameters, double max_norm) {
  const GradientList grads = gradients_of(parameters);
  check(!grads.items.empty(), "clip_grad_norm: no parameter has a gradient; call backward() first");
  const Tensor& any = parameters.begin()->value;
  be(any).grad_norm(ctx(any, cost::grad_norm(grads.elements, grads.items[0].t)), grads.list(),
                    float(max_norm));
  any.device().norm_asked = true;
}

void start_loss_scaling(Device& device, float scale, int64_t growth_interval) {
  check(scale > 0 && std::isfinite(scale), "loss scaling: the scale is ", scale, "; it must be positive");
  check(growth_interval > 0, "loss scaling: the growth interval is ", growth_interval,
        "; it must be positive");
  device.set(&StepScalars::loss_scale, scale);
  device.set(&StepScalars::growth_interval, growth_interval);
  device.set(&StepScalars::good_updates, int64_t(0));
}

double warmup_cosine(int64_t step, int64_t warmup, int64_t total, double peak, double floor) {
  if (step < warmup) return peak * double(step + 1) / double(warmup);
  if (step >= total) return floor;
  const double progress = double(step - warmup) / double(std::max<int64_t>(total - warmup, 1));
  return floor + (peak - floor) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

}  // namespace gradus
