// A training step whose kernel calls are recorded, and then made again without the host's work between them:
// what CUDA calls a graph; here a list of calls, on any device. What changes from step to step reaches the
// device before the step, by a copy each: the batch, Optimizer::set_learning_rate, the number of the attempt.
//
//   CapturedStep captured;
//   for (int64_t step = 0; step < steps; ++step) {
//     read_batch(loader, step, inputs, targets);
//     optimizer.set_learning_rate(warmup_cosine(...));
//     captured.run({inputs, targets}, [&] {
//       loss = {};
//       Tape tape;
//       loss = model.loss(inputs, targets);
//       ...
//     });
//   }
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/tensor/context.h"
#include "src/tensor/kernel_calls.h"

namespace gradus {

class CapturedStep : private KernelObserver {
 public:
  // For the current context, which it must not outlive. The step's memory is the context's again when it
  // ends. A replay allocates nothing, so the meter's bytes and peaks do not show it; its kernels are counted.
  CapturedStep();
  ~CapturedStep() override;
  CapturedStep(const CapturedStep&) = delete;

  // One step, an attempt at an update. The first three times `step` is called: at first it finds its memory,
  // a private pool; twice it is recorded. If the two recordings are the same, all later steps are replays: to
  // the bit what `step` would do as long as nothing else has changed than what the device reads. `inputs` are
  // what the program fills for each step.
  //
  // Errors, before anything is done: other inputs than before (a shape, a dtype, a place in memory); a tensor
  // that the calls read or write is gone; frozen parameters, loss scaling, the seed, the first sample or an
  // Evaluation are not as they were; another context, a step within a step. Then the step can be taken
  // without this, or recorded by another CapturedStep. Errors of `step`: it copies to or from the host, waits
  // for other ranks, is more than one attempt. An error after it: the second recording differs; the next run
  // compares again. Not noticed: other numbers in `step` (an optimizer's betas, the norm to clip at).
  void run(const std::vector<Tensor>& inputs, const std::function<void()>& step);
  bool replays() const { return runs_ == 3; }  // the next run
  struct Recorded {
    std::unique_ptr<KernelCall> call;
    std::string range;  // what the program was in
  };
  const std::vector<Recorded>& calls() const { return calls_; }

  // For code that a step runs: that replays find x where it is; and what the host is to count in them, too.
  void reads_or_writes(const Tensor& x);
  void host_counts(std::function<void()> count) { counts_.push_back(std::move(count)); }

 private:
  struct Input {
    const void* place;
    Shape shape;
    DType dtype;
    bool operator==(const Input&) const = default;
  };
  struct Recipe {  // what else decides about the calls and their arguments
    uint64_t seed;
    int64_t first_sample, freezes;
    bool evaluates, scales_loss;
    bool operator==(const Recipe&) const = default;
  };
  struct Outer {     // what was there before the step
    int64_t number;  // Block::number
    std::string name;
  };
  class Running;
  Recipe recipe() const;
  void check_as_recorded() const;
  void check_alike(const std::vector<Recorded>& before) const;
  void call(std::unique_ptr<KernelCall> call) override;
  void replay();

  Context& context_;
  int64_t pool_;
  int runs_ = 0;  // at most 3
  std::vector<Input> inputs_;
  Recipe recipe_{};
  std::vector<Recorded> calls_;
  int64_t allocations_ = 0;  // when the step began
  std::map<const Block*, Outer> outer_;
  std::vector<std::function<void()>> counts_;
};

}  // namespace gradus
