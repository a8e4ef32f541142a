// A training step whose kernel calls are recorded and then replayed without the host's work between them: on
// a GPU by one launch of a CUDA graph (unless each call is timed or observed), elsewhere as a list. Values
// that change from step to step are copied to the device before the step: the batch, the learning rate
// (Optimizer::set_learning_rate), the number of the attempt.
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
  // Belongs to the current context and must not outlive it. At its end its memory goes to the context's
  // common pool. A replay allocates nothing, so the meter's bytes and peaks do not show it; its kernels are
  // counted.
  CapturedStep();
  ~CapturedStep() override;
  CapturedStep(const CapturedStep&) = delete;

  // One step, an attempt at an update: from the forward pass to an optimizer's step(). The first run warms
  // up: it calls `step`, which allocates from a private pool. The next two runs call `step` and record its
  // kernels. If both recordings are equal, all later runs are replays: they make the recorded calls, so they
  // change the device's memory bitwise as `step` would. A replay does not repeat what `step` does on the
  // host: a tensor that it assigns stays that of the last call. `inputs` are the tensors that the program
  // fills for each step.
  //
  // Errors before anything runs: an input differs from that of the first step (shape, dtype or address); a
  // tensor that the calls read or write was freed; frozen parameters, loss scaling, the seed, the first
  // sample, --check or an Evaluation have changed; a different context is current; a step runs inside a step.
  // The program can then run the step without a CapturedStep, or record it in a new one. Errors of `step`
  // from the second run on: it copies to or from the host, waits for other ranks, makes no update or more
  // than one attempt. An error after `step`: the second recording differs; the next run compares again. Not
  // noticed: numbers in `step` that change (an optimizer's betas, the norm to clip at), and kernels of other
  // contexts, which are not recorded.
  void run(const std::vector<Tensor>& inputs, const std::function<void()>& step);
  bool replays() const { return runs_ == 3; }  // true: the next run is a replay
  struct Place {                               // the block that held a buffer at the time of the call
    int64_t allocation = 0;                    // the block's number; 0: in no block of the device
    const char* begin = nullptr;               // the block's bytes
    const char* end = nullptr;
    bool temporary = false;  // the step allocates and frees it
  };
  struct Recorded {
    std::shared_ptr<const KernelCall> call;
    std::string range;          // the open ranges
    std::vector<Place> places;  // of the call's inputs, outputs and scratch
  };
  const std::vector<Recorded>& calls() const { return calls_; }
  const Context& context() const { return context_; }
  // From now on replays make these calls, which must have the same effect; `memory` is memory that they use
  // in addition to the step's. An Error before the step replays.
  void replace_calls(std::vector<Recorded> calls, const Tensor& memory);

  // For code that runs inside a step: replays access x at its address; they write to `storage`; they call
  // `count` on the host.
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
  struct Settings {  // settings that determine the calls and their arguments
    uint64_t seed;
    int64_t first_sample, freezes;
    bool evaluates, checks_finite, scales_loss;
    bool operator==(const Settings&) const = default;
  };
  struct External {  // a block from before the step
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
  std::unique_ptr<DeviceGraph> graph_;  // the calls; on a GPU, from the first replay on
  const Backend* graph_of_ = nullptr;   // the table whose kernels it calls
  int64_t allocations_ = 0;             // of the allocator, when the step began
  std::map<const Block*, External> external_;
  std::map<const Storage*, std::weak_ptr<Storage>> written_;
  std::vector<std::function<void()>> counts_;
};

}  // namespace gradus
