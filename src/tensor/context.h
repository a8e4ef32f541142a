// All state of a rank is one Context: its devices, its random seed and counters, its recordings and its open
// ranges. One pointer leads to the current Context, so several ranks can live in one process. A Context
// belongs to one thread, which creates, uses and destroys it; nothing is locked. All contexts of a process
// share: the list of live contexts, so only one thread at a time may have any; the OpenMP team of the CPU's
// kernels; one cuBLAS handle per GPU and thread; the order in which emu runs its threads.
#pragma once
#include <optional>
#include <vector>

#include "src/tensor/tensor.h"

namespace gradus {

class CapturedStep;
class KernelObserver;
class Recording;
class Tape;

// The context created last is current, until a different one is made current. Contexts may end in any order;
// the latest of the remaining ones is then current.
struct Context {
  explicit Context(std::string_view device_name = "cpu", uint64_t seed = 1, int64_t memory_budget = 0);
  ~Context();
  Context(const Context&) = delete;
  void make_current();

  Tape* tape() const;      // records the ops; nullptr: they are not recorded
  bool evaluates() const;  // true within an Evaluation: dropout drops nothing
  // The ordinal of the next random op in this forward pass; each tape counts its own ops. A part of a model
  // begins at the ordinal of its first block (Transformer::through_blocks), and its Context needs the seed of
  // the whole model's Context.
  uint32_t& dropout_ordinal();
  RandomKey next_dropout_key(int64_t first_element = 0);  // the key of that op; counts it

  // Ends an attempt at an update (forward, backward, a step of each optimizer). The first tape after a step
  // calls this: dropout then draws new masks, and the loss scale is updated from the results of all
  // optimizers. Does nothing without an optimizer step since the last call.
  void end_attempt();

  // Adds a second device, the host's memory, with its own meter. From now on optimizer states move there when
  // `device` has no room for them (pager.h).
  void add_host();

  Ranges ranges;  // the open ranges; before the devices, whose histories use them to the end
  Device device;
  std::optional<Device> host;
  uint64_t seed;
  int64_t first_sample = 0;   // index in the whole batch of the first sample of this micro-batch, for dropout
  int64_t last_slot = 0;      // ids of gradient slots; 0 means no gradient
  bool check_finite = false;  // --check=nan: every op's output is read and tested
  bool stepped = false;       // true: an optimizer made a step in this attempt
  int64_t freezes = 0;        // how often parameters were frozen or unfrozen
  CapturedStep* captured_step = nullptr;      // the one that runs now
  KernelObserver* kernel_observer = nullptr;  // of the device's kernels; the one that began last

 private:
  friend class Recording;
  Recording* recorder() const;          // the latest one that has a tape
  std::vector<Recording*> recordings_;  // the current one last
  uint32_t dropout_ordinal_ = 0;        // used without a tape
};

Context& current();                             // an Error if there is none
bool of_another_context(const Device& device);  // true: of a context that is not current
// Makes c the current context while it lives; then the previous one is current again.
class CurrentFor {
 public:
  explicit CurrentFor(Context& c) : before_(current()) { c.make_current(); }
  ~CurrentFor() { before_.make_current(); }
  CurrentFor(const CurrentFor&) = delete;

 private:
  Context& before_;
};
// While it lives, the live contexts are those of a list (the current one last), and the contexts before it
// are hidden: each rank of a simulated cluster has its own list.
class ContextsOf {
 public:
  explicit ContextsOf(std::vector<Context*>& list) : list_(list) { exchange(); }
  ~ContextsOf() { exchange(); }
  ContextsOf(const ContextsOf&) = delete;

 private:
  void exchange();
  std::vector<Context*>& list_;
};

// Ops in its scope go to a tape, or are not recorded: Tape, NoTape, Evaluation (autograd/tape.h). It belongs
// to the context that was current when it began. The one that began last, or was made current last, decides;
// recordings may end in any order.
class Recording {
 public:
  Recording(const Recording&) = delete;
  void make_current();

 protected:
  enum class Dropout : uint8_t { AsBefore, None, AsAsked };
  explicit Recording(Tape* to, Dropout dropout = Dropout::AsBefore);
  ~Recording();
  Context& context() const;

 private:
  friend struct Context;
  Context* context_;  // nullptr: the context has ended
  Tape* tape_;
  Dropout dropout_;

 protected:
  uint32_t dropout_ordinal_ = 0;
  Tensor step_;  // a tape's copy of StepScalars::step, from its first random op on
};

}  // namespace gradus
