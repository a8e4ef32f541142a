#include "src/tensor/context.h"

namespace gradus {

static Context* current_context = nullptr;

Context::Context(std::string_view device_name, uint64_t seed, int64_t memory_budget)
    : device(device_name, memory_budget), seed(seed), previous_(current_context) {
  current_context = this;
}

Context::~Context() { current_context = previous_; }

Context& current() {
  check(current_context != nullptr, "no context: declare `Context context(\"cpu\");` before using tensors");
  return *current_context;
}

}  // namespace gradus
