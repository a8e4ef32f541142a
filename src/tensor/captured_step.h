// A training step whose kernel calls are recorded, and then made again without the host's work between them:
// on a GPU by one launch of a CUDA graph (but not while each call is timed or observed), elsewhere as a list.
// What changes from step to step reaches the device before the step, by a copy each: the batch,
// Optimizer::set_learning_rate, the number of the attempt.
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
#include "src/tensor/tensor.h"

namespace gradus {

class CapturedStep : private KernelObserver {
 public:
  // For the current context, which it must not outlive. The step's memory is the context's again when it
  // ends. A replay allocates nothing, so the meter's bytes and peaks do not show it; its kernels are counted.
  CapturedStep();
  ~CapturedStep() override;
  CapturedStep(const CapturedStep&) = delete;

  // One step, an attempt at an update: from the forward pass to an optimizer's step(). The first run warms
  // up: it calls `step`, which finds its memory in a private pool. The next two call it and record its
  // kernels. If both recordings are the same, all later runs are replays: they make the calls again, and so
  // change to the bit what `step` would change on the device. What `step` does on the host is not done again:
  // a tensor that it assigns stays that of the last call. `inputs` are the tensors that the program fills for
  // each step.
  //
  // Errors before anything is done: other inputs than before (a shape, a dtype, a place in memory); a tensor
  // that the calls read or write is gone; frozen parameters, loss scaling, the seed, the first sample,
  // --check or an Evaluation are not as they were; another context, a step within a step. Then the step can
  // be taken without this, or recorded by another CapturedStep. Errors of `step` from the second run on: it
  // copies to or from the host, waits for other ranks, makes no update or more than one attempt. An error
  // after it: the second recording differs; the next run compares again. Not noticed: other numbers in `step`
  // (an optimizer's betas, the norm to clip at), and kernels of another context, which are not recorded.
  void run(const std::vector<Tensor>& inputs, const std::function<void()>& step);
  bool replays() const { return runs_ == 3; }  // the next run
  struct Place {                               // what a buffer was part of when the call was made
    int64_t allocation = 0;                    // its number; 0: no block of the device's
    const char* begin = nullptr;               // the block's bytes
    const char* end = nullptr;
    bool temporary = false;  // the step allocates it and gives it back
  };
  struct Recorded {
    std::shared_ptr<const KernelCall> call;
    std::string range;          // what the program was in
    std::vector<Place> places;  // of the call's inputs, outputs and scratch
  };
  const std::vector<Recorded>& calls() const { return calls_; }
  const Context& context() const { return context_; }
  // From now on replays make these calls, which must change the same; `memory`: what they use beside the
  // step's. An Error before the step replays.
  void replace_calls(std::vector<Recorded> calls, const Tensor& memory);

  // For code that a step runs: replays need x where it is, or write to it; and the host counts in them, too.
  void reads_or_writes(const Tensor& x);
  void writes(const std::shared_ptr<Storage>& storage) { written_.insert_or_assign(storage.get(), storage); }
  void host_counts(std::function<void()> count) { counts_.push_back(std::move(count)); }

 private:
  struct Input {
    const void* place;
    Shape shape;
    DType dtype;
    bool operator==(const Input&) const = default;
  };
  struct Settings {  // what else decides about the calls and their arguments
    uint64_t seed;
    int64_t first_sample, freezes;
    bool evaluates, checks_finite, scales_loss;
    bool operator==(const Settings&) const = default;
  };
  struct External {  // what was there before the step
    int64_t number;  // Block::number
    std::string name;
  };
  class Running;
  Settings settings() const;
  void check_as_recorded() const;
  void check_alike(const std::vector<Recorded>& before) const;
  void call(std::unique_ptr<KernelCall> call) override;
  void replay();
  void note_temporaries();

  Context& context_;
  int64_t pool_;
  int runs_ = 0;  // at most 3
  std::vector<Input> inputs_;
  Settings settings_{};
  std::vector<Recorded> calls_;
  Tensor chains_memory_;
  std::unique_ptr<DeviceGraph> graph_;  // of the calls, on a GPU from the first replay on
  const Backend* graph_of_ = nullptr;   // whose kernels it calls
  int64_t allocations_ = 0;             // when the step began
  std::map<const Block*, External> external_;
  std::map<const Storage*, std::weak_ptr<Storage>> written_;
  std::vector<std::function<void()>> counts_;
};

}  // namespace gradus
