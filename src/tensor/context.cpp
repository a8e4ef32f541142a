#include "src/tensor/context.h"
#include "src/tensor/call.h"
#include "src/tensor/kernel_calls.h"

#include <algorithm>
#include <utility>

namespace gradus {

static std::vector<Context*> contexts;  // the live contexts, the current one last

// Moves x to the end of the list.
template <class T>
static void move_to_end(std::vector<T*>& list, T* x) {
  std::erase(list, x);
  list.push_back(x);
}

Context::Context(std::string_view device_name, uint64_t seed, int64_t memory_budget)
    : device(device_name, memory_budget), seed(seed) {
  device.use(ranges);
  make_current();
}

Context::~Context() {
  while (kernel_observer) kernel_observer->context_ends();
  for (Recording* r : recordings_) r->context_ = nullptr;
  std::erase(contexts, this);
}

void Context::add_host() {
  check(!host, "context: it has a host already");
  host.emplace(device.has_data() ? "cpu" : device.name());
  host->use(ranges);
}

void ContextsOf::exchange() { contexts.swap(list_); }

void Context::make_current() { move_to_end(contexts, this); }

Context& current() {
  check(!contexts.empty(), "no context: declare `Context context(\"cpu\");` before using tensors");
  return *contexts.back();
}

bool of_another_context(const Device& device) {
  return std::any_of(contexts.rbegin(), contexts.rend(), [&](const Context* c) {
    return c != contexts.back() && (&device == &c->device || (c->host && &device == &*c->host));
  });
}

Tape* Context::tape() const { return recordings_.empty() ? nullptr : recordings_.back()->tape_; }

bool Context::evaluates() const {
  const auto decides = std::find_if(recordings_.rbegin(), recordings_.rend(), [](const Recording* r) {
    return r->dropout_ != Recording::Dropout::AsBefore;
  });
  return decides != recordings_.rend() && (*decides)->dropout_ == Recording::Dropout::None;
}

Recording* Context::recorder() const {
  const auto found =
      std::find_if(recordings_.rbegin(), recordings_.rend(), [](const Recording* r) { return r->tape_; });
  return found == recordings_.rend() ? nullptr : *found;
}

uint32_t& Context::dropout_ordinal() {
  Recording* const tape = recorder();
  return tape ? tape->dropout_ordinal_ : dropout_ordinal_;
}

RandomKey Context::next_dropout_key(int64_t first_element) {
  RandomKey key{.seed = seed,
                .ordinal = dropout_ordinal()++,
                .first_sample = first_sample,
                .first_element = first_element};
  Recording* const tape = recorder();
  if (!tape) return key;
  if (!tape->step_.defined()) {
    tape->step_ = Tensor(device, {1}, DType::I64, Kind::Other, "step of a tape");
    device.backend().copy_step(Call(device, {OpClass::Elementwise}), tape->step_.set());
  }
  key.step = tape->step_.in().as<int64_t>();
  return key;
}

void Context::end_attempt() {
  if (!std::exchange(stepped, false)) return;
  device.set(&StepScalars::step, device.host_scalars().step + 1);
  if (device.host_scalars().growth_interval > 0)
    device.backend().update_loss_scale(Call(device, {OpClass::Elementwise}));
}

Recording::Recording(Tape* to, Dropout dropout) : context_(&current()), tape_(to), dropout_(dropout) {
  make_current();
}

Recording::~Recording() {
  if (context_) std::erase(context_->recordings_, this);
}

void Recording::make_current() { move_to_end(context().recordings_, this); }

Context& Recording::context() const {
  check(context_ != nullptr, "tape: its context has ended; declare the context before the tape");
  return *context_;
}

}  // namespace gradus
