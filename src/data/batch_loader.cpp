#include "src/data/batch_loader.h"

#include "src/tensor/profile_range.h"

namespace gradus {

// Two slots per worker, for the batch that it makes and a finished one; and one for the batch being copied.
static Shape shape_of(int64_t B, int64_t T, int64_t workers) {
  check(B >= 1 && T >= 1, "batch loader: batches of ", B, " sequences of ", T,
        " tokens; both must be at least 1");
  return {2 * std::max<int64_t>(workers, 0) + 1, 2 * B, T};  // Prefetch rejects fewer than 0
}

BatchLoader::BatchLoader(int64_t B, int64_t T, int64_t workers, Fill fill)
    : device_(current().device),
      host_("cpu"),
      made_(host_, shape_of(B, T, workers), DType::I32, Kind::Data, "batches"),
      pinned_(device_, made_),
      copies_(device_.allocator().source().copy_queue()),
      prefetch_(workers, slots(), [fill = std::move(fill), B, T](int64_t step, int64_t worker, int32_t* to) {
        fill(step, worker, to, to + B * T);
      }) {
  for (int i : {0, 1}) {
    on_device_[i] = Tensor(device_, {2 * B, T}, DType::I32, Kind::Data, "batch");
    batches_[i] = {on_device_[i].narrow(0, B), on_device_[i].narrow(B, B)};
  }
}

std::vector<int32_t*> BatchLoader::slots() const {
  const int64_t n = made_.shape()[0], ids = made_.numel() / n;
  std::vector<int32_t*> slots;
  for (int64_t s = 0; s < n; ++s)
    slots.push_back(reinterpret_cast<int32_t*>(made_.storage().data()) + s * ids);
  return slots;
}

BatchLoader::Pinned::Pinned(Device& of, const Tensor& memory)
    : source(of.allocator().source()), begin(memory.storage().data()) {
  source.pin(begin, memory.bytes());
}
BatchLoader::Pinned::~Pinned() { source.unpin(begin); }

void BatchLoader::begin_copy() {
  if (!taken_) taken_ = prefetch_.take();  // else the copy was refused before
  Tensor& to = on_device_[step_ % 2];
  device_.copy_in(*copies_, to.set().p, taken_, to.bytes());
  taken_ = nullptr;
  ++step_;
}

const TokenBatch& BatchLoader::next() {
  const ProfileRange range("data");
  if (step_ == 0) begin_copy();
  device_.wait(*copies_);  // for this step's batch: then its host memory may be refilled
  begin_copy();
  return batches_[step_ % 2];
}

}  // namespace gradus
