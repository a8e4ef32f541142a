#include "src/memory/device.h"

#include <iostream>
#include <utility>

#include "src/memory/cuda.h"

namespace gradus {

struct DeviceEntry {
  std::string_view name;
  const Backend& (*backend)();
  std::unique_ptr<Source> (*source)();
};

namespace {

constexpr DeviceEntry kDevices[] = {
    {"cpu", cpu_backend, host_source},
#ifdef GRADUS_CUDA
    {"cuda", cuda_backend, cuda_source},
#endif
    {"emu", emu_backend, host_source},
    {"meta", meta_backend, meta_source},
};

// cuda where it can be used, else cpu. A build with cuda that cannot use it says why, once.
std::string_view best_device() {
#ifdef GRADUS_CUDA
  const std::string problem = cuda_problem();
  if (problem.empty()) return "cuda";
  static bool said = false;
  if (!std::exchange(said, true)) std::cerr << problem << "\nauto: the device is cpu\n";
#endif
  return "cpu";
}

const DeviceEntry& entry(std::string_view name) {
  if (name == "auto") name = best_device();
  for (const DeviceEntry& k : kDevices)
    if (k.name == name) return k;
  check(name != "cuda", cuda_problem());
  fail("device: \"", name, "\" is unknown; there are auto, cpu, cuda, emu and meta");
}

}  // namespace

std::vector<std::string> device_names() { return {"auto", "cpu", "cuda", "emu", "meta"}; }

Device::Device(std::string_view name, int64_t budget) : Device(entry(name), budget) {}

Device::Device(const DeviceEntry& entry, int64_t budget)
    : backend_(&entry.backend()), allocator_(entry.source(), meter_) {
  allocator_.set_budget(budget);
  if (!has_data()) meter_.keep_trace();  // time can only be predicted, from the trace
  scalars_ = allocator_.allocate(sizeof(StepScalars), Kind::Other, "step scalars");
  copy_in(there(), &host_scalars_, sizeof host_scalars_);
}

Device::~Device() {
  if (workspace_) allocator_.free(workspace_);
  allocator_.free(scalars_);
}

Ctx Device::ctx() {
  if (!workspace_)
    workspace_ = allocator_.allocate(kWorkspaceBytes, Kind::Workspace, "workspace", {kWorkspaceBytes});
  return {.scalars = there(), .workspace = workspace_->data(), .stream = allocator_.source().stream()};
}

StepScalars Device::scalars() {
  if (!has_data()) return host_scalars_;
  StepScalars s;
  copy_out(&s, there(), sizeof s);
  return s;
}

void Device::use(Ranges& ranges) {
  ranges_ = &ranges;
  allocator_.take_names_from(ranges);
}

void Device::synchronize() {
  const OpenRange range(ranges_, "wait for the device");
  ++waits_;
  allocator_.source().synchronize();
}

constexpr const char* kNoCopies =
    "a captured step cannot copy from or to the host, because a replay would not repeat the copy; "
    "copy before or after the step";

void Device::copy_in(void* to, const void* from_host, int64_t bytes) {
  check(!records, "copy_in: ", kNoCopies);
  const OpenRange range(ranges_, "copy to the device", bytes);
  allocator_.source().copy_in(to, from_host, bytes);
}

void Device::copy_in(CopyQueue& queue, void* to, const void* from_host, int64_t bytes) {
  check(!records, "copy_in: ", kNoCopies);
  const OpenRange range(ranges_, "copy to the device", bytes);
  queue.copy_in(to, from_host, bytes);
}

void Device::wait(CopyQueue& queue) {
  const OpenRange range(ranges_, "wait for the device");
  ++waits_;
  queue.wait();
}

void Device::copy_out(void* to_host, const void* from, int64_t bytes) {
  check(!records, "copy_out: ", kNoCopies);
  const OpenRange range(ranges_, "copy to the host", bytes);
  ++waits_;
  allocator_.source().copy_out(to_host, from, bytes);
}

}  // namespace gradus
