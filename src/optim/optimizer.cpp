#include "src/optim/optimizer.h"

#include <cmath>
#include <numbers>

#include "src/tensor/captured_step.h"
#include "src/tensor/profile_range.h"

namespace gradus {

static void fill_with_zeros(Tensor& t) {
  if (t.dtype() != DType::U8)
    be(t).fill(ctx(t, cost::fill(t.numel(), t.dtype())), t.numel(), t.set(), 0.0);
  else if (t.device().has_data())  // codes; kernels fill numbers only
    t.device().copy_in(t.set().p, std::vector<char>(size_t(t.bytes())).data(), t.bytes());
}

constexpr int64_t kGroupBytes = int64_t(1) << 20;  // least bytes of states that move to the host together

Optimizer::Optimizer(Parameters& parameters, std::function<States(const Parameter&)> of,
                     const ParameterGroup& group)
    : states_of(std::move(of)),
      shares_(parameters.shares),
      scalars_(current().device, {int64_t(sizeof(UpdateScalars))}, DType::U8, Kind::Other, "update scalars"),
      there_(scalars_.set().as<UpdateScalars>()) {
  Context& context = current();
  check(!*shares_ || &(*shares_)->own_parts() == &parameters,
        "optimizer: the parameters are sharded over ranks; make it for this rank's shards (Zero::shards)");
  restore(0);
  if (context.host) pager.emplace(context.device, *context.host);
  int64_t bytes = 0;  // of the current group's states
  for (Parameter& p : parameters) {
    if (!group(p)) continue;
    if (!p.trainable()) {
      frozen_.push_back(&p);
      continue;
    }
    if (states.empty() || (pager && bytes >= kGroupBytes)) {
      groups_.push_back(states.size()), bytes = 0;
      if (pager) pager->done();  // the previous group may move to the host
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

Call Optimizer::ctx(const Cost& cost) const {
  scalars_.in();  // a captured step notes that its calls read the scalars
  return {scalars_.device(), cost, there_};
}

UpdateScalars Optimizer::scalars() const {
  UpdateScalars s = known_;
  if (scalars_.device().has_data()) scalars_.device().copy_out(&s, there_, sizeof s);
  return s;
}

void Optimizer::restore(int64_t updates) {
  known_ = {.learning_rate = known_.learning_rate, .updates = updates};
  scalars_.device().copy_in(there_, &known_, sizeof known_);
  clipped_ = updating_ = false;
}

constexpr const char* kHalfDone =
    "an error ended an earlier update, so some parameters may have been updated and others not; load a "
    "saved run, or make the model and its optimizer again";

void Optimizer::clip_grad_norm(double max_norm) {
  const ProfileRange range("clip_grad_norm");
  check(!updating_, "clip_grad_norm: ", kHalfDone);
  std::vector<CBuf> items;
  std::vector<int64_t> sizes;
  int64_t elements = 0;
  for (const State& s : states) {
    const Parameter& p = *s.parameter;
    if (!p.trainable() || !p.leaf.written || !p.counted) continue;
    items.push_back(p.leaf.grad.in()), sizes.push_back(p.value.numel());
    elements += p.value.numel();
  }
  check(*shares_ || !items.empty(), "clip_grad_norm: no parameter has a gradient; call backward() first");
  const BufList grads{int64_t(items.size()), items.data(), sizes.data()};
  Tensor squares(scalars_.device(), {1}, DType::F64, Kind::Temporary, "squares");
  const DType t = items.empty() ? DType::F32 : items[0].t;
  kernels().sum_squares(ctx(cost::sum_squares(elements, t)), grads, squares.set());
  if (*shares_) squares = (*shares_)->sums_of_squares(squares);
  kernels().clip_factor(ctx(cost::clip_factor(squares.numel())), squares.numel(), squares.in(),
                        float(max_norm));
  clipped_ = true;
}

void Optimizer::set_learning_rate(double learning_rate) {
  known_.learning_rate = float(learning_rate);
  scalars_.device().copy_in(&there_->learning_rate, &known_.learning_rate, sizeof(float));
  has_rate_ = true;
}

void Optimizer::step(std::optional<double> learning_rate) {
  const ProfileRange range("update");
  check(!updating_, "optimizer: ", kHalfDone);
  Context& context = current();
  check(&scalars_.device() == &context.device, "optimizer: it belongs to another context; make it current");
  bool trains = false;
  for (const State& s : states) {  // before anything is marked as written
    const Parameter& p = *s.parameter;
    check(!p.trainable() || p.leaf.written, "optimizer: parameter '", p.name,
          "' has no gradient; call backward() before step()");
    trains = trains || p.trainable();
  }
  check(trains || *shares_, "optimizer: no parameter is trainable");
  for (const Parameter* p : frozen_)
    check(!p->trainable(), "optimizer: parameter '", p->name,
          "' trains, but was frozen when the optimizer was made, so it has no states; make the optimizer "
          "again");
  const bool scaled = context.device.host_scalars().growth_interval > 0;
  check(!scaled || clipped_, "optimizer: with loss scaling, call clip_grad_norm() before step(); ",
        "it finds overflows (a maximum of 0 clips nothing)");
  check(learning_rate || has_rate_, "optimizer: step() without a learning rate, and set_learning_rate() was ",
        "not called");
  if (learning_rate) set_learning_rate(*learning_rate);
  updating_ = true;  // from here on an error leaves the update half done
  kernels().begin_update(ctx({OpClass::Elementwise}), clipped_);
  for (size_t g = 0; g + 1 < groups_.size(); ++g) {
    if (pager) pager->use(g);
    update_group(groups_[g], groups_[g + 1]);
  }
  if (pager) pager->done();
  if (*shares_) (*shares_)->updated();
  const auto count = [this, &context] { ++known_.updates, context.stepped = true; };
  count();
  if (context.captured_step) context.captured_step->host_counts(count);
  clipped_ = updating_ = false;
}

void Optimizer::update_group(size_t first, size_t end) {
  std::vector<size_t> of;
  std::vector<ParamUpdate> updates;
  for (size_t i = first; i < end; ++i) {
    State& s = states[i];
    Parameter& p = *s.parameter;
    if (!p.trainable()) continue;
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
    of.push_back(i), updates.push_back(u);
  }
  if (!of.empty()) update(of, {int64_t(updates.size()), updates.data()});
}

StateSpec like(const Parameter& p, const char* name) { return {name, p.value.shape(), p.precision.state}; }

Sgd::Sgd(Parameters& parameters, SgdArgs args, const ParameterGroup& group)
    : Optimizer(
          parameters,
          [args](const Parameter& p) { return args.momentum != 0 ? States{like(p, "momentum")} : States{}; },
          group),
      args_(args) {}
void Sgd::update(const std::vector<size_t>&, ParamList list) {
  kernels().sgd(ctx(cost::sgd(list)), list, args_);
}

Optimizer::States adamw_states(const Parameter& p) { return {like(p, "m"), like(p, "v")}; }
void Optimizer::adamw(ParamList list, const AdamWArgs& args) const {
  kernels().adamw(ctx(cost::adamw(list)), list, args);
}

AdamW::AdamW(Parameters& parameters, AdamWArgs args, const ParameterGroup& group)
    : Optimizer(parameters, adamw_states, group), args_(args) {}
void AdamW::update(const std::vector<size_t>&, ParamList list) { adamw(list, args_); }

void check_whole(const char* optimizer, const Parameter& p) {
  check(!p.shard, optimizer, ": '", p.name, "' is a shard of a parameter ",
        p.shard ? p.shard->whole : Shape(),
        ", but its update needs whole matrices; use AdamW, SGD or AdamW8bit");
}

Adafactor::Adafactor(Parameters& parameters, AdafactorArgs args, const ParameterGroup& group)
    : Optimizer(
          parameters,
          [](const Parameter& p) {
            check_whole("adafactor", p);
            const DType t = statistics_dtype(p.value.dtype());
            if (p.value.shape().rank() < 2) return States{{"squares", p.value.shape(), t}};
            return States{{"columns", {p.value.last()}, t}, {"rows", {p.value.rows().rows}, t}};
          },
          group),
      args_(args) {}
void Adafactor::update(const std::vector<size_t>&, ParamList list) {
  kernels().adafactor(ctx(cost::adafactor(list, args_.step_size)), list, args_);
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
