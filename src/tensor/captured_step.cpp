#include "src/tensor/captured_step.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "src/tensor/call.h"
#include "src/tensor/profile_range.h"

namespace gradus {

namespace {

// How an argument is kept: by value, and of lists the items.
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

// Entry of the table: a pointer to a member that is a function pointer. Its calls are made, and recorded.
template <const char* kName, auto kEntry>
struct Recorded;
template <const char* kName, class... A, void (*Backend::*kEntry)(A...)>
struct Recorded<kName, kEntry> : KernelCall {
  std::tuple<typename Kept<A>::Type...> arguments;

  explicit Recorded(A... a) : KernelCall(kName), arguments(a...) {}
  void make(const Backend& kernels) const override {
    std::apply([&](const auto&... a) { (kernels.*kEntry)(a...); }, arguments);
  }
  bool equals(const KernelCall& other) const override {
    return entry == other.entry && arguments == static_cast<const Recorded&>(other).arguments;
  }
  static void call(A... a) {
    CapturedStep& step = *current().captured_step;
    (step.kernels().*kEntry)(a...);
    step.add(std::make_unique<Recorded>(a...));
  }
};

namespace names {
#define GRADUS_KERNEL(entry, ...) constexpr char entry[] = #entry;
#include "kernels/entries.inc"
}  // namespace names

constexpr Backend kRecording = {
    .name = "",
#define GRADUS_KERNEL(entry, ...) .entry = Recorded<names::entry, &Backend::entry>::call,
#include "kernels/entries.inc"
};

}  // namespace

// While `step` is called: in the pool, and but for the first time recorded.
class CapturedStep::Running {
 public:
  explicit Running(CapturedStep& of) : of_(of), device_(of.context_.device), table_(kRecording) {
    of.kernels_ = &device_.backend();
    of.calls_.clear(), of.costs_.clear(), of.outer_.clear(), of.counts_.clear();
    of.allocations_ = device_.allocator().allocations();
    pool_before_ = device_.allocator().use_pool(of.pool_);
    of.context_.captured_step = &of;
    if (of.runs_ == 0) return;
    table_.name = of.kernels_->name;
    device_.use(table_);
    device_.meter().log_to(&of.costs_);
    device_.records = true;
  }
  ~Running() {
    device_.records = false;
    device_.meter().log_to(nullptr);
    device_.use(*of_.kernels_);
    of_.context_.captured_step = nullptr;
    device_.allocator().use_pool(pool_before_);
  }
  Running(const Running&) = delete;

 private:
  CapturedStep& of_;
  Device& device_;
  Backend table_;
  int64_t pool_before_;
};

CapturedStep::CapturedStep() : context_(current()), pool_(context_.device.allocator().begin_pool()) {}
CapturedStep::~CapturedStep() { context_.device.allocator().end_pool(pool_); }

void CapturedStep::run(const std::vector<Tensor>& inputs, const std::function<void()>& step) {
  check(&current() == &context_, "captured step: it belongs to another context; make it current");
  check(!context_.captured_step, "captured step: one within another; make them one step");
  std::vector<Input> now;
  for (const Tensor& x : inputs) now.push_back({x.in().p, x.shape(), x.dtype()});
  if (runs_ == 0) inputs_ = now;
  check(now.size() == inputs_.size(), "captured step: ", now.size(), " inputs, and ", inputs_.size(),
        " in the first step");
  for (size_t i = 0; i < now.size(); ++i)
    check(now[i] == inputs_[i], "captured step: input ", i, " is ", now[i].shape, " ", name_of(now[i].dtype),
          ", and in the first step was ", inputs_[i].shape, " ", name_of(inputs_[i].dtype),
          " in another place or of another kind; fill the same tensors in each step");
  if (replays()) check_as_recorded();
  context_.end_attempt();
  if (replays()) return replay();
  recipe_ = recipe();
  const KernelCalls before = std::move(calls_);
  const int run = std::exchange(runs_, std::min(runs_, 1));  // after an error recording begins again
  try {
    const Running running(*this);
    step();
  } catch (...) {
    calls_.clear();
    throw;
  }
  runs_ = run;
  if (run == 2) check_alike(before);
  runs_ = run + 1;
}

CapturedStep::Recipe CapturedStep::recipe() const {
  return {context_.seed, context_.first_sample, context_.freezes, context_.evaluates(),
          context_.device.host_scalars().growth_interval > 0};
}

void CapturedStep::check_as_recorded() const {
  constexpr const char* kAnew = "; record it anew in another CapturedStep";
  const Recipe now = recipe();
  check(now.freezes == recipe_.freezes, "captured step: parameters have been frozen or unfrozen since",
        kAnew);
  check(now.scales_loss == recipe_.scales_loss, "captured step: loss scaling has begun since", kAnew);
  check(now == recipe_,
        "captured step: the context's seed, its first sample or an Evaluation is not as it was", kAnew);
  for (const auto& [block, outer] : outer_)
    check(!block->free && block->number == outer.number, "captured step: '", outer.name,
          "', which it reads or writes, is gone or in another place", kAnew);
}

void CapturedStep::check_alike(const KernelCalls& before) const {
  constexpr const char* kWhy =
      "; every step must do the same at the same addresses, so give up what lives from one step to the next "
      "(loss = {}) before its successor is made, and begin or end with empty gradients";
  const auto alike = [](const auto& a, const auto& b) { return a->equals(*b); };
  const auto [now, then] = std::mismatch(calls_.begin(), calls_.end(), before.begin(), before.end(), alike);
  if (now != calls_.end() && then != before.end())
    fail("captured step: kernel call ", now - calls_.begin() + 1, " is ", (*now)->entry, " in '",
         (*now)->range, "', and in the step before was ", (*then)->entry, " in '", (*then)->range,
         (*now)->entry == (*then)->entry ? "' with other arguments" : "'", kWhy);
  check(calls_.size() == before.size(), "captured step: it made ", calls_.size(), " kernel calls, and ",
        before.size(), " in the step before", kWhy);
}

void CapturedStep::replay() {
  const ProfileRange range("captured step");
  const Backend& kernels = context_.device.backend();
  for (const auto& call : calls_) call->make(kernels);
  for (const Cost& cost : costs_) context_.device.meter().count(cost);
  for (const auto& count : counts_) count();
}

void CapturedStep::add(std::unique_ptr<KernelCall> call) {
  call->range = context_.ranges.path();
  calls_.push_back(std::move(call));
}

void CapturedStep::reads_or_writes(const Tensor& x) {
  const Block& block = x.storage().block();
  if (block.number <= allocations_) outer_[&block] = {block.number, block.name};
}

}  // namespace gradus
