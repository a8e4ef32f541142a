#include "src/tensor/kernel_calls.h"

#include <tuple>

#include "src/tensor/context.h"

namespace gradus {

namespace {

// How an argument is stored: by value; for a list, its items.
template <class A>
struct Kept {
  using Type = std::decay_t<A>;
};
template <>
struct Kept<ParamList> {
  struct Type {
    std::vector<ParamUpdate> items;
    Type(ParamList list) : items(list.items, list.items + list.count) {}
    operator ParamList() const { return {int64_t(items.size()), items.data()}; }
    bool operator==(const Type&) const = default;
  };
};
template <>
struct Kept<BufList> {
  struct Type {
    std::vector<CBuf> items;
    std::vector<int64_t> sizes;
    Type(BufList list)
        : items(list.items, list.items + list.count), sizes(list.sizes, list.sizes + list.count) {}
    operator BufList() const { return {int64_t(items.size()), items.data(), sizes.data()}; }
    bool operator==(const Type&) const = default;
  };
};

// Collects the arguments of a call. StepScalars and UpdateScalars, to which `ctx` points, are not among the
// buffers.
struct Describe {
  CallArguments& to;
  void operator()(const Ctx& ctx) const { to.ctx = ctx; }
  void operator()(int64_t n) const {  // the first integer is the size
    if (to.rows == RowShape{1, 0}) to.rows = {1, n};
  }
  void operator()(const RowShape& rows) const { to.rows = rows; }
  void operator()(const CBuf& x) const { to.inputs.push_back(x); }
  void operator()(const Out& y) const { to.outputs.push_back(y); }
  void operator()(float number) const { to.numbers.push_back(number); }
  void operator()(const RandomKey& key) const {
    to.key = key;
    to.inputs.push_back({key.step, DType::I64});
  }
  void operator()(const AttentionShape& shape) const { (*this)(shape.key); }
  void operator()(const Kept<BufList>::Type& list) const {
    to.inputs.insert(to.inputs.end(), list.items.begin(), list.items.end());
  }
  void operator()(const Kept<ParamList>::Type& list) const {
    for (const ParamUpdate& p : list.items) {
      to.inputs.push_back(p.grad);
      to.outputs.insert(to.outputs.end(), {p.value, p.m, p.v, p.master, p.m_scales, p.v_scales});
    }
  }
  void operator()(const KernelChain& chain) const {
    for (void* const p : chain.p) to.outputs.push_back({p, DType::U8, Write::Add});
  }
  template <class Other>
  void operator()(const Other&) const {}  // options without memory
};

// A call of one entry of the table (kEntry: a pointer to a member that is a function pointer). The static
// call() takes the place of that entry in an observed table: it passes the call to the observer.
template <const char* kName, auto kEntry>
struct CallOf;
template <const char* kName, class... A, void (*Backend::*kEntry)(A...)>
struct CallOf<kName, kEntry> : KernelCall {
  std::tuple<typename Kept<A>::Type...> arguments;

  explicit CallOf(A... a) : KernelCall(kName, first(a...)), arguments(a...) {
    std::get<0>(arguments).cost = &cost;
  }
  void make(const Backend& kernels) const override {
    std::apply([&](const auto&... a) { (kernels.*kEntry)(a...); }, arguments);
  }
  bool equals(const KernelCall& other) const override {
    return entry == other.entry && arguments == static_cast<const CallOf&>(other).arguments;
  }
  CallArguments described() const override {
    CallArguments described;
    std::apply([&](const auto&... a) { (Describe{described}(a), ...); }, arguments);
    return described;
  }
  static void call(A... a) { current().kernel_observer->call(std::make_unique<CallOf>(a...)); }

 private:
  template <class... Others>
  static const Ctx& first(const Ctx& ctx, const Others&...) {
    return ctx;
  }
};

namespace names {
#define GRADUS_KERNEL(entry, ...) constexpr char entry[] = #entry;
#include "kernels/entries.inc"
}  // namespace names

constexpr Backend kObserved = {
    .name = "",
#define GRADUS_KERNEL(entry, ...) .entry = CallOf<names::entry, &Backend::entry>::call,
#include "kernels/entries.inc"
};

}  // namespace

std::unique_ptr<KernelCall> chain_call(const Ctx& ctx, RowShape rows, const KernelChain& chain) {
  return std::make_unique<CallOf<names::chain, &Backend::chain>>(ctx, rows, chain);
}

KernelObserver::~KernelObserver() { stop(); }

void KernelObserver::observe(Context& context) {
  check(!context_, "kernel observer: it observes a context already");
  context_ = &context;
  earlier_ = std::exchange(context.kernel_observer, this);
  kernels_ = &context.device.backend();
  table_ = kObserved;
  table_.name = kernels_->name;
  context.device.use(table_);
}

void KernelObserver::stop() noexcept {
  if (!context_) return;
  KernelObserver* later = context_->kernel_observer;
  if (later == this) {
    context_->kernel_observer = earlier_;
    context_->device.use(*kernels_);
  } else {
    while (later->earlier_ != this) later = later->earlier_;
    later->earlier_ = earlier_, later->kernels_ = kernels_;
  }
  context_ = nullptr;
}

void KernelObserver::make(const KernelCall& call) const {
  struct Turn {  // the earlier observer is called if `kernels_` is its table
    KernelObserver*& of;
    KernelObserver* const before;
    ~Turn() { of = before; }
  } turn{context_->kernel_observer, context_->kernel_observer};
  turn.of = earlier_;
  call.make(*kernels_);
}

}  // namespace gradus
