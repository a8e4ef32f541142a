#include "src/memory/device.h"

namespace gradus {

namespace {

struct Known {
  std::string_view name;
  const Backend& (*backend)();
  std::unique_ptr<Source> (*source)();
};

constexpr Known kDevices[] = {
    {"cpu", cpu_backend, host_source},
    {"emu", emu_backend, host_source},
    {"meta", meta_backend, meta_source},
};

const Known& known(std::string_view name) {
  if (name == "auto") name = "cpu";
  for (const Known& k : kDevices)
    if (k.name == name) return k;
  check(name != "cuda",
        "device: this build has no cuda; build with `make CUDA=1` where the CUDA toolkit is, or use ",
        "--device=emu, which runs the same kernels on the CPU");
  fail("device: \"", name, "\" is unknown; there are auto, cpu, cuda, emu and meta");
}

}  // namespace

std::vector<std::string> device_names() { return {"auto", "cpu", "cuda", "emu", "meta"}; }

Device::Device(std::string_view name, int64_t budget)
    : backend_(&known(name).backend()), allocator_(known(name).source(), meter_) {
  allocator_.set_budget(budget);
  if (!has_data()) meter_.keep_trace();  // time can only be predicted
  scalars_ = allocator_.allocate(sizeof(StepScalars), Kind::Other, "step scalars");
  copy_in(scalars_->data(), &host_scalars_, sizeof host_scalars_);
}

Device::~Device() {
  if (workspace_) allocator_.free(workspace_);
  allocator_.free(scalars_);
}

Ctx Device::ctx() {
  if (!workspace_)
    workspace_ = allocator_.allocate(kWorkspaceBytes, Kind::Vendor, "workspace", {kWorkspaceBytes});
  return {.scalars = static_cast<StepScalars*>(static_cast<void*>(scalars_->data())),
          .scratch = nullptr,
          .workspace = workspace_->data(),
          .stream = nullptr};
}

StepScalars Device::scalars() {
  if (!has_data()) return host_scalars_;
  StepScalars s;
  copy_out(&s, scalars_->data(), sizeof s);
  return s;
}

void Device::write_scalar(const void* field, int64_t bytes) {
  const int64_t offset =
      static_cast<const char*>(field) - static_cast<const char*>(static_cast<void*>(&host_scalars_));
  copy_in(scalars_->data() + offset, field, bytes);
}

void Device::copy_in(void* to, const void* from_host, int64_t bytes) {
  allocator_.source().copy_in(to, from_host, bytes);
}

void Device::copy_out(void* to_host, const void* from, int64_t bytes) {
  allocator_.source().copy_out(to_host, from, bytes);
}

}  // namespace gradus
