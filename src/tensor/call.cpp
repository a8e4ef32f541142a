#include "src/tensor/call.h"

#include "src/memory/device_timing.h"

namespace gradus {

Call::Call(Device& device, const Cost& cost, UpdateScalars* update) : device_(device), cost_(cost) {
  device.meter().count(cost);
  ctx_ = device.ctx();
  ctx_.cost = &cost_;
  ctx_.update = update;
  if (cost.scratch > 0) {
    scratch_ = device.allocator().allocate(cost.scratch, Kind::Temporary, "scratch", {cost.scratch});
    ctx_.scratch = scratch_->data();
  }
  if (device.meter().keeps_times()) start_ = seconds_now(device);
}

Call::~Call() {
  if (device_.meter().keeps_times()) try {
      device_.meter().add_seconds(cost_.op_class, seconds_now(device_) - start_);
    } catch (
        const Error&) {  // the kernel failed; a destructor cannot say so, who waits next for a result does
    }
  if (scratch_) device_.allocator().free(scratch_);
}

}  // namespace gradus
