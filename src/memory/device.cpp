#include "src/memory/device.h"

#include <cstring>
#include <new>

namespace gradus {

static const Backend& backend_named(std::string_view name) {
  check(name == "cpu", "device: \"", name, "\" is unknown; the devices of this build are: cpu");
  return cpu_backend();
}

Device::Device(std::string_view name, int64_t budget)
    : backend_(&backend_named(name)), allocator_(host_source(), meter_) {
  allocator_.set_budget(budget);
  scalars_ = allocator_.allocate(sizeof(StepScalars), Kind::Other, "step scalars");
  new (scalars_->data()) StepScalars;
}

Device::~Device() {
  if (workspace_) allocator_.free(workspace_);
  allocator_.free(scalars_);
}

void* Device::workspace() {
  if (!workspace_)
    workspace_ = allocator_.allocate(kWorkspaceBytes, Kind::Vendor, "workspace", {kWorkspaceBytes});
  return workspace_->data();
}

// memcpy must not be given the null pointers of empty buffers, not even for 0 bytes.
void Device::copy_in(void* to, const void* from_host, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from_host, size_t(bytes));
}

void Device::copy_out(void* to_host, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to_host, from, size_t(bytes));
}

}  // namespace gradus
