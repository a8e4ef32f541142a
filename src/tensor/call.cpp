#include "src/tensor/call.h"

#include "src/memory/device_timing.h"

namespace gradus {

Metered::Metered(Device& device, const Cost& cost) : device_(device), op_class_(cost.op_class) {
  device.meter().count(cost);
  if (device.meter().keeps_times()) start_ = seconds_now(device);
}

Metered::~Metered() {
  if (device_.meter().keeps_times()) try {
      device_.meter().add_seconds(op_class_, seconds_now(device_) - start_);
    } catch (const Error&) {  // the kernel failed; the next wait for a result reports it
    }
}

Call::Call(Device& device, const Cost& cost, UpdateScalars* update)
    : device_(device),
      cost_(cost),
      scratch_(cost.scratch > 0
                   ? device.allocator().allocate(cost.scratch, Kind::Temporary, "scratch", {cost.scratch})
                   : nullptr),
      ctx_(device.ctx()),
      metered_(device, cost) {
  ctx_.update = update;
  ctx_.cost = &cost_;
  if (scratch_) ctx_.scratch = scratch_->data();
}

Call::~Call() {
  if (scratch_) device_.allocator().free(scratch_);
}

}  // namespace gradus
