// A device: a table of kernels, a source of memory with its allocator and meter, and the two fixed pieces of
// memory that kernels expect (the step scalars and the workspace).
#pragma once
#include <string_view>

#include "kernels/kernels.h"
#include "src/memory/allocator.h"

namespace gradus {

class Device {
 public:
  // `name` is one of: cpu. `budget` bounds the bytes reserved (0: no bound). Throws for an unknown device.
  explicit Device(std::string_view name, int64_t budget = 0);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const char* name() const { return backend_->name; }
  const Backend& backend() const { return *backend_; }
  void use(const Backend& table) { backend_ = &table; }  // one that outlives the device
  Allocator& allocator() { return allocator_; }
  Meter& meter() { return meter_; }
  StepScalars& scalars() { return *static_cast<StepScalars*>(static_cast<void*>(scalars_->data())); }
  void* workspace();  // kWorkspaceBytes, kind vendor; allocated when first asked for

  void copy_in(void* to, const void* from_host, int64_t bytes);
  void copy_out(void* to_host, const void* from, int64_t bytes);

 private:
  const Backend* backend_;
  Meter meter_;  // before the allocator, which refers to it
  Allocator allocator_;
  Block* scalars_ = nullptr;
  Block* workspace_ = nullptr;
};

}  // namespace gradus
