// Batches of tokens that are on the device when a step needs them: worker threads fill page-locked memory of
// the host, and a queue of its own copies the batch of step s + 1 to the device while step s runs.
#pragma once
#include "src/data/prefetch.h"
#include "src/tensor/tensor.h"

namespace gradus {

struct TokenBatch {
  Tensor inputs, targets;  // (B, T), of ids
};

class BatchLoader {
 public:
  // Writes the B T inputs and targets of step 0, 1, 2, ... It is called as Prefetch::Make is: a worker's
  // encoders and buffers are chosen by `worker`.
  using Fill = std::function<void(int64_t step, int64_t worker, int32_t* inputs, int32_t* targets)>;
  // On the device of the current context. B T >= 1.
  BatchLoader(int64_t B, int64_t T, int64_t workers, Fill fill);
  BatchLoader(const BatchLoader&) = delete;

  // The batch of the next step, for all that is asked of the device until the next call. Waits if the workers
  // are behind; throws what `fill` has thrown, for this step or the one that follows, which is copied now.
  // Not within a captured step: the two batches on the device alternate.
  const TokenBatch& next();
  Device& host() { return host_; }  // where the batches are made

 private:
  struct HostBatch {
    int32_t *inputs, *targets;
  };
  struct Pinned {  // page-locked while it lives
    Pinned(Device& of, const Tensor& memory);
    ~Pinned();
    Source& source;
    void* begin;
  };
  std::vector<HostBatch> slots() const;
  void begin_copy();

  Device &device_, host_;
  const Tensor made_;  // (slots, 2, B, T), on the host: inputs and targets of each batch
  const Pinned pinned_;
  const std::unique_ptr<CopyQueue> copies_;
  Prefetch<HostBatch> prefetch_;
  TokenBatch on_device_[2];
  int64_t step_ = 0;  // whose copy begins next
};

}  // namespace gradus
