// Optimizers compute new weights from gradients and a learning rate. Except for Muon, each step is one kernel
// launch over all parameters, or one per group of parameters if states are paged.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "src/nn/parameter.h"
#include "src/tensor/call.h"
#include "src/tensor/pager.h"

namespace gradus {

// A tensor that an optimizer keeps for a parameter between updates.
struct StateSpec {
  std::string name;
  Shape shape;
  DType dtype;
  int64_t block = 1;  // elements of the parameter per element of the state (a scale)
};

// Selects the parameters of a model that an optimizer updates; several optimizers can divide a model.
using ParameterGroup = std::function<bool(const Parameter&)>;
inline bool all_parameters(const Parameter&) { return true; }

// The states are tensors named "<parameter>.<state>" (kind Optimizer, initially 0). Parameters that do not
// train have none. The states are public so that files can save them. In a context with a host, groups of
// states move there when the device has no room, and return for their update. Several optimizers can live in
// one context, in any order: each counts its own updates.
class Optimizer {
 public:
  using States = std::vector<StateSpec>;
  // states_of returns the states of each parameter that trains: the first becomes ParamUpdate::m, the second
  // v, the next two, if there are any, m_scales and v_scales.
  Optimizer(Parameters& parameters, std::function<States(const Parameter&)> states_of,
            const ParameterGroup& group = all_parameters);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;

  // Scales the next update so that the global L2 norm of its gradients (of all ranks, if the parameters are
  // sharded) is at most max_norm (Pascanu et al. 2013); 0: no clipping. The norm before clipping is in
  // scalars().grad_norm.
  void clip_grad_norm(double max_norm);

  // One update with the current gradients, multiplied by clip_grad_norm's factor if that was called since the
  // last update. Every trainable parameter must have a gradient. A parameter that was frozen after the
  // optimizer was made does not change; one that was unfrozen is an error. These errors change nothing. After
  // any other error (of a kernel or a different rank, or no memory for states or scratch) some parameters may
  // have been updated and others not, so each later step is an error until a saved run is loaded. The host
  // does not wait: a kernel decides whether the update is skipped (begin_update in
  // kernels/cpu/loss_scaling.cpp).
  void step(std::optional<double> learning_rate = {});
  // For step() without a learning rate (CapturedStep). Makes one copy to the device.
  void set_learning_rate(double learning_rate);

  // Read back from the device; on meta, where no update is skipped, the host's copy.
  UpdateScalars scalars() const;
  void restore(int64_t updates);  // after the states were loaded: counts updates from here

  struct State {
    Parameter* parameter;
    std::vector<Tensor> tensors;
  };
  std::vector<State> states;
  const std::function<States(const Parameter&)> states_of;
  std::optional<Pager> pager;  // for the states; set if the context has a host

 protected:
  // Item i of the list belongs to states[of[i]].
  virtual void update(const std::vector<size_t>& of, ParamList) = 0;
  // AdamW's update, for optimizers that leave some parameters to it.
  void adamw(ParamList, const AdamWArgs&) const;
  const Backend& kernels() const { return be(scalars_); }
  Call ctx(const Cost& cost) const;  // for a kernel that reads or writes the optimizer's scalars

 private:
  void update_group(size_t first, size_t end);
  std::vector<size_t> groups_;           // the first state of each group, and the end of the last
  std::vector<Parameter*> frozen_;       // frozen when the optimizer was made
  std::shared_ptr<RankShares*> shares_;  // those of the parameters
  Tensor scalars_;                       // one UpdateScalars
  UpdateScalars* there_;                 // its address, on the device
  UpdateScalars known_;                  // the host's copy
  bool has_rate_ = false;                // set_learning_rate was called
  bool clipped_ = false;                 // clip_grad_norm was called since the last update
  bool updating_ = false;                // during an update, and after one that failed
};

// SGD, with g' = g + wd w: w -= lr g'; with momentum: m = momentum m + g', w -= lr m; with Nesterov's: w -=
// lr (g' + momentum m). State: 0 or 1 value per parameter.
class Sgd : public Optimizer {
 public:
  explicit Sgd(Parameters& parameters, SgdArgs args = {}, const ParameterGroup& group = all_parameters);

 private:
  void update(const std::vector<size_t>& of, ParamList) override;
  SgdArgs args_;
};

// AdamW (Loshchilov & Hutter 2019, algorithm 2). State: m and v, 2 values per parameter.
class AdamW : public Optimizer {
 public:
  explicit AdamW(Parameters& parameters, AdamWArgs args = {}, const ParameterGroup& group = all_parameters);

 private:
  void update(const std::vector<size_t>& of, ParamList) override;
  AdamWArgs args_;
};

// Adafactor (Shazeer & Stern 2018): AdamW without m, and with a v that is rebuilt from the means of its rows
// and of its columns. State: R + C values for a matrix (R, C), one value per element for a vector; always in
// fp32, because squares underflow in fp16. The default is the paper's step size, relative to the size of the
// weights (its section 8): the learning rate is an upper bound, 1e-2 there. With StepSize::Given, as in
// Hugging Face's trainer, the learning rate is the step size.
class Adafactor : public Optimizer {
 public:
  explicit Adafactor(Parameters& parameters, AdafactorArgs args = {},
                     const ParameterGroup& group = all_parameters);

 private:
  void update(const std::vector<size_t>& of, ParamList) override;
  AdafactorArgs args_;
};

// AdamW's states of a parameter, for optimizers that leave some parameters to AdamW's update.
Optimizer::States adamw_states(const Parameter& p);
// A state with the parameter's shape, in the state dtype of its precision.
StateSpec like(const Parameter& p, const char* name);
// For optimizers that update whole matrices: an error if p is a shard.
void check_whole(const char* optimizer, const Parameter& p);

// Starts dynamic loss scaling (Micikevicius et al. 2018, sec. 3.2): backward passes compute gradients that
// are `scale` times too large, so that small ones do not underflow in fp16; clip_grad_norm, which must then
// be called before every step(), divides them. An optimizer with an infinite or undefined gradient skips its
// update. Once per attempt (Context::end_attempt) the scale is halved if an optimizer skipped its update, and
// doubled after `growth_interval` attempts in a row without a skip. The device makes these decisions
// (begin_update and update_loss_scale in kernels/*/loss_scaling).
void start_loss_scaling(Device& device, float scale = 65536, int64_t growth_interval = 2000);

// Linear warm-up over `warmup` steps, then half a cosine down to `floor` at step `total` (steps count from
// 0).
double warmup_cosine(int64_t step, int64_t warmup, int64_t total, double peak, double floor);

}  // namespace gradus
