// Batches of tokens that are on the device when a step needs them: worker threads fill pinned (page-locked)
// host memory, and a separate queue copies the batch of step s + 1 to the device while step s runs.
#pragma once
#include "src/data/prefetch.h"
#include "src/tensor/tensor.h"

namespace gradus {

struct TokenBatch {
  Tensor inputs, targets;  // (B, T), of ids
};

class BatchLoader {
 public:
  // Writes the B T inputs and the B T targets of step 0, 1, 2, ... Like Prefetch::Make, it is called on
  // several threads at the same time, but for each worker one call after the other. So objects that threads
  // cannot share, such as encoders, are chosen by `worker`.
  using Fill = std::function<void(int64_t step, int64_t worker, int32_t* inputs, int32_t* targets)>;
  // For the device of the current context, which must outlive this. B, T: at least 1; workers: as in
  // Prefetch.
  BatchLoader(int64_t B, int64_t T, int64_t workers, Fill fill);
  BatchLoader(const BatchLoader&) = delete;

  // The batch of the next step, for all kernels that are launched until the next call. Waits while the
  // workers are behind, and for the copy of this batch, which began one step ago: so the host is at most one
  // step ahead of the device. Rethrows an exception of `fill` for this step, or for the following step, whose
  // copy begins now. Not for captured steps, because the two batches on the device alternate.
  const TokenBatch& next();
  Device& host() { return host_; }  // where the workers make the batches

 private:
  struct Pinned {  // page-locked while it lives
    Pinned(Device& of, const Tensor& memory);
    ~Pinned();
    Source& source;
    void* begin;
  };
  std::vector<int32_t*> slots() const;
  void begin_copy();

  Device &device_, host_;
  const Tensor made_;  // (slots, 2 B, T), on the host: each batch's inputs, then its targets
  const Pinned pinned_;
  Tensor on_device_[2];    // (2 B, T)
  TokenBatch batches_[2];  // views of on_device_
  const std::unique_ptr<CopyQueue> copies_;
  Prefetch<int32_t*> prefetch_;
  int32_t* taken_ = nullptr;  // a batch whose copy has not begun
  int64_t step_ = 0;          // the step whose copy begins next
};

}  // namespace gradus
