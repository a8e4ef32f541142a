#include "src/tensor/context.h"

#include <algorithm>

namespace gradus {

static std::vector<Context*> contexts;  // that are alive, the current one last

// x becomes the last of the list.
template <class T>
static void move_to_end(std::vector<T*>& list, T* x) {
  std::erase(list, x);
  list.push_back(x);
}

Context::Context(std::string_view device_name, uint64_t seed, int64_t memory_budget)
    : device(device_name, memory_budget), seed(seed) {
  make_current();
}

Context::~Context() {
  for (Recording* r : recordings_) r->context_ = nullptr;
  std::erase(contexts, this);
}

void Context::add_host() {
  check(!host, "context: it has a host already");
  host.emplace(device.has_data() ? "cpu" : device.name());
}

void ContextsOf::exchange() { contexts.swap(list_); }

void Context::make_current() { move_to_end(contexts, this); }

Context& current() {
  check(!contexts.empty(), "no context: declare `Context context(\"cpu\");` before using tensors");
  return *contexts.back();
}

Tape* Context::tape() const { return recordings_.empty() ? nullptr : recordings_.back()->tape_; }

bool Context::evaluates() const {
  return std::any_of(recordings_.begin(), recordings_.end(),
                     [](const Recording* r) { return r->dropout_ == Recording::Dropout::None; });
}

RandomKey Context::next_dropout_key() { return {seed, dropout_ordinal()++, first_sample}; }

uint32_t& Context::dropout_ordinal() {
  const auto tape =
      std::find_if(recordings_.rbegin(), recordings_.rend(), [](const Recording* r) { return r->tape_; });
  return tape == recordings_.rend() ? dropout_ordinal_ : (*tape)->dropout_ordinal_;
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
