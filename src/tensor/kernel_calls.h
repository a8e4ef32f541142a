// Kernel calls as objects: an observer of a context's kernels gets each call with its arguments and makes it.
#pragma once
#include <memory>
#include <vector>

#include "kernels/cost.h"

namespace gradus {

struct Context;

// The arguments of a call, in the same form for all entries.
struct CallArguments {
  Ctx ctx;
  RowShape rows{1, 0};       // {1, n} for n elements
  std::vector<CBuf> inputs;  // in the order of the entry's arguments, with all items of lists
  std::vector<Out> outputs;
  std::vector<double> numbers;  // such as alpha and eps
  RandomKey key;                // its step is an input, too
};

struct KernelCall {
  const char* entry;  // name of the table entry
  Cost cost;
  KernelCall(const char* entry, const Ctx& ctx) : entry(entry), cost(ctx.cost ? *ctx.cost : Cost{}) {}
  virtual ~KernelCall() = default;
  virtual void make(const Backend& kernels) const = 0;
  virtual bool equals(const KernelCall& other) const = 0;  // all arguments, also pointers
  virtual CallArguments described() const = 0;
};

std::unique_ptr<KernelCall> chain_call(const Ctx&, RowShape, const KernelChain&);

class KernelObserver {
 public:
  KernelObserver() = default;
  virtual ~KernelObserver();
  KernelObserver(const KernelObserver&) = delete;
  virtual void call(std::unique_ptr<KernelCall> call) = 0;

 protected:
  // From now on the kernels of the context's device are called through this observer, until stop() or the end
  // of the context. If there are several, each gets the calls that the observers that began later make.
  void observe(Context& context);
  void stop() noexcept;
  void make(const KernelCall& call) const;  // as if this observer did not exist

 private:
  friend struct Context;
  virtual void context_ends() noexcept { stop(); }

  Context* context_ = nullptr;
  KernelObserver* earlier_ = nullptr;
  const Backend* kernels_ = nullptr;  // the table without this observer
  Backend table_{};
};

}  // namespace gradus
