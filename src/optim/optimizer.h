// Optimizers: gradients and learning rate in, new weights out. Each step is one kernel launch over all
// parameters.
#pragma once
#include <vector>

#include "src/nn/parameter.h"

namespace gradus {

// The states of an optimizer, one tensor per parameter and state, named "<parameter>.<state>" (kind
// Optimizer, zeros, in the dtype that the parameter's precision says). Parameters that do not train have
// none. They are public so that checkpoints can save them.
class Optimizer {
 public:
  Optimizer(Parameters& parameters, std::vector<std::string> state_names);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;

  // One update with the gradients at hand, multiplied by clip_grad_norm's factor if that was called since the
  // last update. Every trainable parameter must have a gradient. Counts the update in StepScalars::updates
  // and, because with it this attempt ends, the next attempt in StepScalars::step.
  void step(double learning_rate);

  struct State {
    Parameter* parameter;
    std::vector<Tensor> tensors;  // as many as state names
  };
  const std::vector<std::string> state_names;
  std::vector<State> states;

 protected:
  virtual void update(const Tensor& any, ParamList) = 0;  // `any`: a tensor on the device
};

// SGD: w -= lr (g + wd w), with momentum: m = momentum m + g, w -= lr m. State: 0 or 1 value per parameter.
class Sgd : public Optimizer {
 public:
  explicit Sgd(Parameters& parameters, SgdArgs args = {});

 private:
  void update(const Tensor& any, ParamList) override;
  SgdArgs args_;
};

// AdamW (Loshchilov & Hutter 2019, algorithm 2). State: m and v, 2 values per parameter.
class AdamW : public Optimizer {
 public:
  explicit AdamW(Parameters& parameters, AdamWArgs args = {});

 private:
  void update(const Tensor& any, ParamList) override;
  AdamWArgs args_;
};

// Scales the next update so that the global L2 norm of all gradients is at most max_norm (Pascanu et al.
// 2013). The norm before scaling is in scalars().grad_norm.
void clip_grad_norm(Parameters& parameters, double max_norm);

// Linear warm-up over `warmup` steps, then half a cosine down to `floor` at step `total` (steps count from
// 0).
double warmup_cosine(int64_t step, int64_t warmup, int64_t total, double peak, double floor);

}  // namespace gradus
