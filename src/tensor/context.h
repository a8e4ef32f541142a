// All state of a rank is one Context behind one current pointer: its devices, its random seed and counters,
// what it records, what it is in. So several ranks can live in one process. A Context belongs to one thread,
// which makes it, uses it and ends it: nothing is locked. Beside it the process has, for all contexts
// together: the list of those that are alive, so only one thread at a time has any; the OpenMP team of the
// CPU's kernels; a handle of cuBLAS for each GPU and thread; the order in which emu lets threads take turns.
#pragma once
#include <optional>
#include <vector>

#include "src/tensor/tensor.h"

namespace gradus {

class CapturedStep;
class KernelObserver;
class Recording;
class Tape;

// The context made last is the current one, until another is made current. They may end in any order: then
// the latest of those that are left is current.
struct Context {
  explicit Context(std::string_view device_name = "cpu", uint64_t seed = 1, int64_t memory_budget = 0);
  ~Context();
  Context(const Context&) = delete;
  void make_current();

  Tape* tape() const;      // where ops are recorded; nullptr: nowhere
  bool evaluates() const;  // within an Evaluation, where dropout drops nothing
  // Of the next random op in this forward pass: each tape counts its own. A part of a model begins with its
  // first block's (Transformer::through_blocks); its Context needs the seed that the whole's has.
  uint32_t& dropout_ordinal();
  RandomKey next_dropout_key(int64_t first_element = 0);  // of that op, which is then counted

  // An attempt at an update: forward, backward, and a step of each optimizer. The first tape after a step
  // calls this: dropout then draws new masks, and the loss scale takes in what all optimizers have found.
  // Nothing happens without a step since the last call.
  void end_attempt();

  // A second device, the host's memory, with a meter of its own: from now on the states of optimizers go
  // there when `device` has no room for them (pager.h).
  void add_host();

  Ranges ranges;  // what runs now; before the devices, whose history asks to the end
  Device device;
  std::optional<Device> host;
  uint64_t seed;
  int64_t first_sample = 0;   // index in the whole batch of the first sample of this micro-batch, for dropout
  int64_t last_slot = 0;      // ids of gradient slots; 0 means no gradient
  bool check_finite = false;  // --check=nan: every op's output is read and tested
  bool stepped = false;       // an optimizer, in this attempt
  int64_t freezes = 0;        // how often parameters were frozen or unfrozen
  CapturedStep* captured_step = nullptr;      // that is recorded now
  KernelObserver* kernel_observer = nullptr;  // of the device's kernels: the one that began last

 private:
  friend class Recording;
  Recording* recorder() const;          // the latest with a tape
  std::vector<Recording*> recordings_;  // the current one last
  uint32_t dropout_ordinal_ = 0;        // without a tape
};

Context& current();                             // an error if there is none
bool of_another_context(const Device& device);  // than the current one
// While it lives, c is the current context; then the one before is again.
class CurrentFor {
 public:
  explicit CurrentFor(Context& c) : before_(current()) { c.make_current(); }
  ~CurrentFor() { before_.make_current(); }
  CurrentFor(const CurrentFor&) = delete;

 private:
  Context& before_;
};
// While it lives, the contexts that are alive are those of a list, the current one last, and what was alive
// is out of sight: each rank of a simulated cluster has its own.
class ContextsOf {
 public:
  explicit ContextsOf(std::vector<Context*>& list) : list_(list) { exchange(); }
  ~ContextsOf() { exchange(); }
  ContextsOf(const ContextsOf&) = delete;

 private:
  void exchange();
  std::vector<Context*>& list_;
};

// A stretch of the program whose ops go to a tape, or nowhere: Tape, NoTape, Evaluation (autograd/tape.h). It
// is of the context that was current when it began. The one that began last, or was made current last,
// decides; they may end in any order.
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
  Context* context_;  // nullptr: it has ended
  Tape* tape_;
  Dropout dropout_;

 protected:
  uint32_t dropout_ordinal_ = 0;
  Tensor step_;  // a tape's copy of StepScalars::step, from its first random op on
};

}  // namespace gradus
