// Kernel calls as objects: who observes a context's kernels gets each call, with its arguments, and makes it.
#pragma once
#include <memory>

#include "kernels/cost.h"

namespace gradus {

struct Context;

struct KernelCall {
  const char* entry;  // of the table
  Cost cost;
  KernelCall(const char* entry, const Ctx& ctx) : entry(entry), cost(ctx.cost ? *ctx.cost : Cost{}) {}
  virtual ~KernelCall() = default;
  virtual void make(const Backend& kernels) const = 0;
  virtual bool equals(const KernelCall& other) const = 0;  // all arguments, to the pointer
};

class KernelObserver {
 public:
  KernelObserver() = default;
  virtual ~KernelObserver();
  KernelObserver(const KernelObserver&) = delete;
  virtual void call(std::unique_ptr<KernelCall> call) = 0;

 protected:
  // From now on the kernels of the context's device are called through this, until stop(), or the context's
  // end. Of several observers each is handed the calls that those which began later make.
  void observe(Context& context);
  void stop() noexcept;
  void make(const KernelCall& call) const;  // as it would be made without this observer

 private:
  friend struct Context;
  virtual void context_ends() noexcept { stop(); }

  Context* context_ = nullptr;
  KernelObserver* earlier_ = nullptr;
  const Backend* kernels_ = nullptr;  // the table without this observer
  Backend table_{};
};

}  // namespace gradus
