// Optimizers: gradients and learning rate in, new weights out. Each step is one kernel launch over all
// parameters, or over a group of them if states are paged, but for Muon's.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "src/nn/parameter.h"
#include "src/tensor/pager.h"

namespace gradus {

// What an optimizer keeps of a parameter between updates.
struct StateSpec {
  std::string name;
  Shape shape;
  DType dtype;
};

// The states are tensors named "<parameter>.<state>" (kind Optimizer, zeros at first). Parameters that do not
// train have none. They are public so that checkpoints can save them. In a context with a host they go there
// when the device has no room, in groups of parameters, and come back for their update.
class Optimizer {
 public:
  using States = std::vector<StateSpec>;
  // states_of says for each parameter that trains which states it has: the first becomes ParamUpdate::m, the
  // second v, the next two, if there are any, m_scales and v_scales.
  Optimizer(Parameters& parameters, std::function<States(const Parameter&)> states_of);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;

  // One update with the gradients at hand, multiplied by clip_grad_norm's factor if that was called since the
  // last update. Every trainable parameter must have a gradient. Counts the update in StepScalars::updates
  // and, because with it this attempt ends, the next attempt in StepScalars::step.
  void step(double learning_rate);

  struct State {
    Parameter* parameter;
    std::vector<Tensor> tensors;
  };
  std::vector<State> states;
  const std::function<States(const Parameter&)> states_of;
  std::optional<Pager> pager;  // of the states, if the context has a host

 protected:
  // `any`: some tensor, which says on which device; item i of the list is that of states[first + i].
  virtual void update(const Tensor& any, size_t first, ParamList) = 0;

 private:
  void update_group(size_t first, size_t end);
  std::vector<size_t> groups_;  // where each begins in `states`, and where the last ends
};

// SGD, with g' = g + wd w: w -= lr g'; with momentum: m = momentum m + g', w -= lr m; with Nesterov's: w -=
// lr (g' + momentum m). State: 0 or 1 value per parameter.
class Sgd : public Optimizer {
 public:
  explicit Sgd(Parameters& parameters, SgdArgs args = {});

 private:
  void update(const Tensor& any, size_t first, ParamList) override;
  SgdArgs args_;
};

// AdamW (Loshchilov & Hutter 2019, algorithm 2). State: m and v, 2 values per parameter.
class AdamW : public Optimizer {
 public:
  explicit AdamW(Parameters& parameters, AdamWArgs args = {});

 private:
  void update(const Tensor& any, size_t first, ParamList) override;
  AdamWArgs args_;
};

// Adafactor (Shazeer & Stern 2018): AdamW without m, and with a v that is rebuilt from the means of its rows
// and of its columns. State: of a matrix (R, C) R + C values, of a vector as many as it has; in fp32 whatever
// the precision, because squares underflow in fp16. By default the paper's: steps relative to the size of the
// weights (its section 8), for which the learning rate is an upper bound, 1e-2 there. StepSize::Given is what
// Hugging Face's trainer runs: steps of the learning rate.
class Adafactor : public Optimizer {
 public:
  explicit Adafactor(Parameters& parameters, AdafactorArgs args = {});

 private:
  void update(const Tensor& any, size_t first, ParamList) override;
  AdafactorArgs args_;
};

// For optimizers that update some parameters by AdamW: its states, and its update of some parameters.
Optimizer::States adamw_states(const Parameter& p);
void adamw(const Tensor& any, ParamList, const AdamWArgs& args);
// A state of the parameter's shape, in the dtype that its precision says.
StateSpec like(const Parameter& p, const char* name);
// For those that update whole matrices: refuses shards.
void check_whole(const char* optimizer, const Parameter& p);

// The gradients of the parameters that train and have one, as kernels take them.
struct GradientList {
  std::vector<CBuf> items;
  std::vector<int64_t> sizes;
  int64_t elements = 0;
  BufList list() const { return {int64_t(items.size()), items.data(), sizes.data()}; }
};
GradientList gradients_of(const Parameters& parameters);

// Scales the next update so that the global L2 norm of all gradients is at most max_norm (Pascanu et al.
// 2013); 0: leaves it as it is. The norm before clipping is in scalars().grad_norm.
void clip_grad_norm(Parameters& parameters, double max_norm);

// Dynamic loss scaling from now on (Micikevicius et al. 2018, sec. 3.2): backward passes compute gradients
// `scale` times too large, so that small ones do not underflow in fp16; clip_grad_norm, which then has to be
// called before every step(), divides them. An update with an infinite or undefined gradient is skipped and
// the scale halved; after `growth_interval` updates in a row without one it is doubled. All of it is decided
// on the device: the scale is in scalars().loss_scale, the number of updates that were made in
// scalars().updates.
void start_loss_scaling(Device& device, float scale = 65536, int64_t growth_interval = 2000);

// Linear warm-up over `warmup` steps, then half a cosine down to `floor` at step `total` (steps count from
// 0).
double warmup_cosine(int64_t step, int64_t warmup, int64_t total, double peak, double floor);

}  // namespace gradus
