// Optimizers: gradients and learning rate in, new weights out. Each step is one kernel launch over all
// parameters, or over a group of them if states are paged, but for Muon's.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "src/nn/parameter.h"
#include "src/tensor/call.h"
#include "src/tensor/pager.h"

namespace gradus {

// What an optimizer keeps of a parameter between updates.
struct StateSpec {
  std::string name;
  Shape shape;
  DType dtype;
  int64_t block = 1;  // so many elements of the parameter have one of the state's: a scale
};

// Which of a model's parameters an optimizer is for; several optimizers can share out a model.
using ParameterGroup = std::function<bool(const Parameter&)>;
inline bool all_parameters(const Parameter&) { return true; }

// The states are tensors named "<parameter>.<state>" (kind Optimizer, zeros at first). Parameters that do not
// train have none. They are public so that files can save them. In a context with a host they go there
// when the device has no room, in groups of parameters, and come back for their update.
// Several optimizers can live in one context, in any order: what counts an update is each one's own.
class Optimizer {
 public:
  using States = std::vector<StateSpec>;
  // states_of says for each parameter that trains which states it has: the first becomes ParamUpdate::m, the
  // second v, the next two, if there are any, m_scales and v_scales.
  Optimizer(Parameters& parameters, std::function<States(const Parameter&)> states_of,
            const ParameterGroup& group = all_parameters);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;

  // Scales the next update so that the global L2 norm of its gradients, of all ranks if they share the
  // parameters out, is at most max_norm (Pascanu et al. 2013); 0: does not scale it. The norm before clipping
  // is in scalars().grad_norm.
  void clip_grad_norm(double max_norm);

  // One update with the gradients at hand, multiplied by clip_grad_norm's factor if that was called since the
  // last update. Every trainable parameter must have a gradient; one that was frozen since the optimizer was
  // made stays as it is, one that was unfrozen is an error; these errors change nothing. After any other (a
  // kernel, no memory for states or scratch, another rank) some parameters may have been updated and others
  // not: then each later step is an error until a saved run is loaded. The host does not wait: a kernel
  // decides whether the update is skipped (begin_update in kernels/cpu/loss_scaling.cpp).
  void step(std::optional<double> learning_rate = {});
  // For steps without one (CapturedStep): one copy to the device.
  void set_learning_rate(double learning_rate);

  // Read back from the device; on meta, where no update is skipped, what the host knows.
  UpdateScalars scalars() const;
  void restore(int64_t updates);  // its states were loaded: updates are counted from here

  struct State {
    Parameter* parameter;
    std::vector<Tensor> tensors;
  };
  std::vector<State> states;
  const std::function<States(const Parameter&)> states_of;
  std::optional<Pager> pager;  // of the states, if the context has a host

 protected:
  // Item i of the list is of states[of[i]].
  virtual void update(const std::vector<size_t>& of, ParamList) = 0;
  // AdamW's update, for optimizers that leave some parameters to it.
  void adamw(ParamList, const AdamWArgs&) const;
  const Backend& kernels() const { return be(scalars_); }
  Call ctx(const Cost& cost) const;  // of a kernel that reads or writes the optimizer's scalars

 private:
  void update_group(size_t first, size_t end);
  std::vector<size_t> groups_;           // where each begins in `states`, and where the last ends
  std::vector<Parameter*> frozen_;       // when the optimizer was made
  std::shared_ptr<RankShares*> shares_;  // of the parameters, if each rank updates a part
  Tensor scalars_;                       // UpdateScalars
  UpdateScalars* there_;                 // where they are
  UpdateScalars known_;                  // to the host
  bool has_rate_ = false;                // set_learning_rate was called
  bool clipped_ = false;                 // since the last update
  bool updating_ = false;                // also after an error on the way
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
// and of its columns. State: of a matrix (R, C) R + C values, of a vector as many as it has; in fp32 whatever
// the precision, because squares underflow in fp16. By default the paper's: steps relative to the size of the
// weights (its section 8), for which the learning rate is an upper bound, 1e-2 there. StepSize::Given is what
// Hugging Face's trainer runs: steps of the learning rate.
class Adafactor : public Optimizer {
 public:
  explicit Adafactor(Parameters& parameters, AdafactorArgs args = {},
                     const ParameterGroup& group = all_parameters);

 private:
  void update(const std::vector<size_t>& of, ParamList) override;
  AdafactorArgs args_;
};

// What AdamW keeps of a parameter, for optimizers that leave some to it.
Optimizer::States adamw_states(const Parameter& p);
// A state of the parameter's shape, in the dtype that its precision says.
StateSpec like(const Parameter& p, const char* name);
// For those that update whole matrices: refuses shards.
void check_whole(const char* optimizer, const Parameter& p);

// Dynamic loss scaling from now on (Micikevicius et al. 2018, sec. 3.2): backward passes compute gradients
// `scale` times too large, so that small ones do not underflow in fp16; clip_grad_norm, which then has to be
// called before every step(), divides them. An optimizer whose gradients hold one that is infinite or
// undefined skips its update. Once per attempt (Context::end_attempt) the scale is halved if one did, and
// doubled after `growth_interval` attempts in a row without. All of it is decided on the device
// (begin_update and update_loss_scale in kernels/*/loss_scaling).
void start_loss_scaling(Device& device, float scale = 65536, int64_t growth_interval = 2000);

// Linear warm-up over `warmup` steps, then half a cosine down to `floor` at step `total` (steps count from
// 0).
double warmup_cosine(int64_t step, int64_t warmup, int64_t total, double peak, double floor);

}  // namespace gradus
