#include "src/data/batch_loader.h"

#include "src/tensor/profile_range.h"

namespace gradus {

// Inputs and targets: for each worker of a batch that it makes and of one that waits; and of one that is
// copied.
static Shape shape_of(int64_t B, int64_t T, int64_t workers) {
  check(B >= 1 && T >= 1, "batch loader: batches of ", B, " sequences of ", T,
        " tokens; both must be at least 1");
  return {2 * std::max<int64_t>(workers, 0) + 1, 2, B, T};  // Prefetch refuses fewer than 0
}

static Tensor ids_of(Device& device, int64_t B, int64_t T, const char* name) {
  return Tensor(device, {B, T}, DType::I32, Kind::Data, name);
}

BatchLoader::BatchLoader(int64_t B, int64_t T, int64_t workers, Fill fill)
    : device_(current().device),
      host_("cpu"),
      made_(host_, shape_of(B, T, workers), DType::I32, Kind::Data, "batches"),
      pinned_(device_, made_),
      copies_(device_.allocator().source().copy_queue()),
      prefetch_(workers, slots(), [fill = std::move(fill)](int64_t step, int64_t worker, HostBatch& to) {
        fill(step, worker, to.inputs, to.targets);
      }) {
  for (TokenBatch& b : on_device_) b = {ids_of(device_, B, T, "inputs"), ids_of(device_, B, T, "targets")};
}

std::vector<BatchLoader::HostBatch> BatchLoader::slots() const {
  const int64_t n = made_.shape()[2] * made_.shape()[3];
  std::vector<HostBatch> slots;
  for (int64_t s = 0; s < made_.shape()[0]; ++s) {
    int32_t* const begin = reinterpret_cast<int32_t*>(made_.storage().data()) + 2 * s * n;
    slots.push_back({begin, begin + n});
  }
  return slots;
}

BatchLoader::Pinned::Pinned(Device& of, const Tensor& memory)
    : source(of.allocator().source()), begin(memory.storage().data()) {
  source.pin(begin, memory.bytes());
}
BatchLoader::Pinned::~Pinned() { source.unpin(begin); }

// Begins to copy the batch of step `step_` to the device.
void BatchLoader::begin_copy() {
  const HostBatch& from = prefetch_.take();
  TokenBatch& to = on_device_[step_ % 2];
  device_.copy_in(*copies_, to.inputs.set().p, from.inputs, to.inputs.bytes());
  device_.copy_in(*copies_, to.targets.set().p, from.targets, to.targets.bytes());
  ++step_;
}

const TokenBatch& BatchLoader::next() {
  const ProfileRange range("data");
  if (step_ == 0) begin_copy();
  copies_->wait();  // of this step's batch, which began a step ago: the workers may have its memory again
  begin_copy();
  return on_device_[step_ % 2];
}

}  // namespace gradus
