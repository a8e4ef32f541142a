// A device: a table of kernels, a source of memory with its allocator and meter, and the two fixed pieces of
// memory that kernels expect (the step scalars and the workspace).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "src/memory/allocator.h"

namespace gradus {

// The devices of this build, "auto" first (cuda if available, else cpu): the values of --device.
std::vector<std::string> device_names();

struct DeviceEntry;  // an entry of the table of devices

class Device {
 public:
  // `name` is one of device_names(); `budget` limits the reserved bytes (0: no limit). If the device is
  // unknown or not available, throws a sentence that says what is missing.
  explicit Device(std::string_view name, int64_t budget = 0);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const char* name() const { return backend_->name; }
  const Backend& backend() const { return *backend_; }
  void use(const Backend& table) { backend_ = &table; }             // which must outlive the device
  bool has_data() const { return allocator_.source().has_data(); }  // false on meta
  Allocator& allocator() { return allocator_; }
  Meter& meter() { return meter_; }

  // The Ctx for kernels, without the scratch memory of the call.
  Ctx ctx();
  StepScalars scalars();  // read back from the device
  // Writes one scalar, as in device.set(&StepScalars::loss_scale, 8.0f).
  template <class T>
  void set(T StepScalars::*field, T value) {
    copy_in(&(there()->*field), &value, sizeof value);
    host_scalars_.*field = value;
  }
  // The values that the host wrote last, without reading the device.
  const StepScalars& host_scalars() const { return host_scalars_; }

  void synchronize();  // returns when all queued work is done
  void copy_in(void* to, const void* from_host, int64_t bytes);
  // The same on a separate queue, made by allocator().source().copy_queue().
  void copy_in(CopyQueue& queue, void* to, const void* from_host, int64_t bytes);
  void wait(CopyQueue& queue);                                    // returns when its copies are done
  void copy_out(void* to_host, const void* from, int64_t bytes);  // the host waits for the device
  // The allocator names its events by these ranges, which must outlive the device. Waits and copies open
  // ranges of their own.
  void use(Ranges& ranges);
  // How often the host has waited for the device, in synchronize(), copy_out() and wait().
  int64_t waits() const { return waits_; }
  // Set while a step is captured. Copies are then errors, because a replay would not repeat them.
  bool records = false;

 private:
  Device(const DeviceEntry&, int64_t budget);
  StepScalars* there() { return reinterpret_cast<StepScalars*>(scalars_->data()); }  // on the device

  const Backend* backend_;
  Ranges* ranges_ = nullptr;
  Meter meter_;  // before the allocator, which refers to it
  Allocator allocator_;
  StepScalars host_scalars_;  // the values that the host wrote last
  int64_t waits_ = 0;
  Block* scalars_ = nullptr;
  Block* workspace_ = nullptr;  // kWorkspaceBytes, kind workspace; allocated when first asked for
};

}  // namespace gradus
