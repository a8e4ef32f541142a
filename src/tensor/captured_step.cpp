#include "src/tensor/captured_step.h"

#include <algorithm>
#include <set>
#include <utility>

#include "src/tensor/call.h"
#include "src/tensor/profile_range.h"

namespace gradus {

// Lives while `step` runs: uses the private pool and, except in the first run, records the kernel calls.
class CapturedStep::Running {
 public:
  explicit Running(CapturedStep& of) : of_(of), device_(of.context_.device) {
    of.calls_.clear(), of.external_.clear(), of.written_.clear(), of.counts_.clear();
    of.allocations_ = device_.allocator().allocations();
    if (of.runs_ > 0) of.observe(of.context_);
    pool_before_ = device_.allocator().use_pool(of.pool_);
    of.context_.captured_step = &of;
    device_.records = of.runs_ > 0;
  }
  ~Running() {
    device_.records = false;
    of_.context_.captured_step = nullptr;
    device_.allocator().use_pool(pool_before_);
    of_.stop();
  }
  Running(const Running&) = delete;

 private:
  CapturedStep& of_;
  Device& device_;
  int64_t pool_before_;
};

CapturedStep::CapturedStep() : context_(current()), pool_(context_.device.allocator().begin_pool()) {}
CapturedStep::~CapturedStep() { context_.device.allocator().end_pool(pool_); }

void CapturedStep::run(const std::vector<Tensor>& inputs, const std::function<void()>& step) {
  check(&current() == &context_,
        "captured step: it belongs to a different context; make that context current");
  check(!context_.captured_step, "captured step: it runs inside a captured step; make them one step");
  std::vector<Input> now;
  for (const Tensor& x : inputs) now.push_back({x.in().p, x.shape(), x.dtype()});
  if (runs_ == 0) inputs_ = now;
  check(now.size() == inputs_.size(), "captured step: ", now.size(), " inputs, but ", inputs_.size(),
        " in the first step");
  for (size_t i = 0; i < now.size(); ++i)
    check(now[i] == inputs_[i], "captured step: input ", i, " is ", now[i].shape, " ", name_of(now[i].dtype),
          ", but in the first step it was ", inputs_[i].shape, " ", name_of(inputs_[i].dtype),
          ", or at a different address; fill the same tensors in each step");
  if (replays()) check_as_recorded();
  context_.end_attempt();
  if (replays()) return replay();
  settings_ = settings();
  const std::vector<Recorded> before = std::move(calls_);
  const int run = std::exchange(runs_, std::min(runs_, 1));  // after an error, recording starts over
  try {
    const Running running(*this);
    step();
    check(context_.stepped, "captured step: no optimizer has made an update in it; a step goes from the ",
          "forward pass to the update");
  } catch (...) {
    calls_.clear();
    throw;
  }
  runs_ = run;
  if (run == 2) check_alike(before), note_temporaries();
  runs_ = run + 1;
}

CapturedStep::Settings CapturedStep::settings() const {
  return {context_.seed,        context_.first_sample, context_.freezes,
          context_.evaluates(), context_.check_finite, context_.device.host_scalars().growth_interval > 0};
}

void CapturedStep::check_as_recorded() const {
  constexpr const char* kRecord = "; record the step in a new CapturedStep";
  const Settings now = settings();
  check(now.freezes == settings_.freezes, "captured step: parameters have been frozen or unfrozen since",
        kRecord);
  check(now.scales_loss == settings_.scales_loss, "captured step: loss scaling has begun since", kRecord);
  check(now == settings_,
        "captured step: the context's seed, its first sample, --check or an Evaluation has changed", kRecord);
  for (const auto& [block, external] : external_)
    check(!block->free && block->number == external.number, "captured step: '", external.name,
          "', which it reads or writes, was freed or has a different address", kRecord);
}

void CapturedStep::check_alike(const std::vector<Recorded>& before) const {
  constexpr const char* kWhy =
      "; every step must do the same at the same addresses, so free a tensor that lives from one step to the "
      "next (loss = {}) before the next one is created, and begin or end with empty gradients";
  const auto alike = [](const auto& a, const auto& b) { return a.call->equals(*b.call); };
  const auto [now, then] = std::mismatch(calls_.begin(), calls_.end(), before.begin(), before.end(), alike);
  if (now != calls_.end() && then != before.end())
    fail("captured step: kernel call ", now - calls_.begin() + 1, " is ", now->call->entry, " in '",
         now->range, "', but in the step before it was ", then->call->entry, " in '", then->range,
         now->call->entry == then->call->entry ? "' with different arguments" : "'", kWhy);
  check(calls_.size() == before.size(), "captured step: it made ", calls_.size(), " kernel calls, but ",
        before.size(), " in the step before", kWhy);
}

void CapturedStep::replay() {
  const ProfileRange range("captured step");
  Device& device = context_.device;
  const bool each_is_observed = device.meter().keeps_times() || context_.kernel_observer;
  const auto make_calls = [&] {
    for (const Recorded& recorded : calls_) recorded.call->make(device.backend());
  };
  if (graph_of_ != &device.backend()) graph_ = nullptr, graph_of_ = &device.backend();
  if (!graph_ && !each_is_observed) graph_ = device.allocator().source().graph(make_calls);
  if (graph_ && !each_is_observed) {
    for (const Recorded& recorded : calls_) device.meter().count(recorded.call->cost);
    graph_->launch();
  } else {
    for (const Recorded& recorded : calls_) {
      const Metered metered(device, recorded.call->cost);
      recorded.call->make(device.backend());
    }
  }
  for (const auto& [place, storage] : written_)
    if (const auto there = storage.lock()) ++there->version;
  for (const auto& count : counts_) count();
}

template <class F>
static void for_each_block_in_use(Device& device, F f) {
  for (const auto& [serial, segment] : device.allocator().segments())
    for (const Block* b = segment.first; b; b = b->next)
      if (!b->free) f(*b);
}

void CapturedStep::call(std::unique_ptr<KernelCall> call) {
  make(*call);
  std::vector<const void*> buffers;
  const CallArguments arguments = call->described();
  for (const CBuf& x : arguments.inputs) buffers.push_back(x.p);
  for (const Out& y : arguments.outputs) buffers.push_back(y.p);
  buffers.push_back(arguments.ctx.scratch);
  std::vector<Place> places(buffers.size());
  for_each_block_in_use(context_.device, [&](const Block& b) {
    const char* const end = b.data() + std::max<int64_t>(b.requested, 1);
    for (size_t i = 0; i < buffers.size(); ++i)
      if (b.data() <= buffers[i] && buffers[i] < end) places[i] = {b.number, b.data(), end, false};
  });
  calls_.push_back({std::move(call), context_.ranges.path(), std::move(places)});
}

void CapturedStep::note_temporaries() {
  std::set<int64_t> in_use;
  for_each_block_in_use(context_.device, [&](const Block& b) { in_use.insert(b.number); });
  for (Recorded& recorded : calls_)
    for (Place& place : recorded.places)
      place.temporary = place.allocation > allocations_ && !in_use.contains(place.allocation);
}

void CapturedStep::replace_calls(std::vector<Recorded> calls, const Tensor& memory) {
  check(replays(), "captured step: its calls can be replaced only when it replays, after three steps");
  calls_ = std::move(calls), chains_memory_ = memory, graph_ = nullptr;
}

void CapturedStep::reads_or_writes(const Tensor& x) {
  const Block& block = x.storage().block();
  if (block.number <= allocations_) external_[&block] = {block.number, block.name};
}

}  // namespace gradus
