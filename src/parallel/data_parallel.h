// Data parallelism: every rank has the whole model and a part of each batch; before the update the ranks sum
// their gradients. If each loss is weighted by its share of the batch (cross_entropy's `count`), the sum is
// the gradient of the whole batch, so all ranks make the same update and their weights stay equal.
#pragma once
#include <deque>
#include <memory>

#include "src/parallel/comm/comm.h"
#include "src/parallel/flat.h"

namespace gradus {

// The simplest method: one all-reduce per parameter, after the backward pass.
void sum_gradients(Comm& comm, Parameters& parameters);

// Gradients in buckets: buffers of `bucket_bytes` or a little more, each with several gradients, which one
// all-reduce sums (Li et al. 2020, "PyTorch distributed: experiences on accelerating data parallel training",
// sec. 3.2). The last parameters, whose gradients are final first, are in the first bucket.
class GradientBuckets {
 public:
  // While this lives, the gradients of the parameters that train are in the buckets. Until then do not free
  // their memory (drop_grad).
  GradientBuckets(Comm& comm, Parameters& parameters, int64_t bucket_bytes);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;

  // Call this before the last backward pass of a step: until sum(), a backward pass begins to sum a bucket as
  // soon as its gradients are final.
  void sum_during_backward() { during_backward_ = true; }
  // Begins the sums that have not begun, and waits for all sums. Every parameter must have a gradient. After
  // a pass that ended with an error on all ranks, zero_grad() waits for the sums that had begun and drops
  // them.
  void sum();
  int64_t buckets() const { return int64_t(buckets_.size()); }
  // Elements of all buckets, including the padding to a multiple of the number of ranks.
  int64_t numel() const { return numel_of(buckets_); }

 private:
  struct Bucket : FlatParameters {
    Tensor gradients;
    size_t final = 0;  // number of final gradients
    std::unique_ptr<Work> work;
  };
  void add_bucket(const std::vector<Parameter*>& parameters);
  void one_is_final(Bucket& bucket);
  void begin(Bucket& bucket);
  void end();

  Comm& comm_;
  Parameters& parameters_;
  std::deque<Bucket> buckets_;
  size_t begun_ = 0;  // number of buckets, from the first on, whose sums have begun
  bool during_backward_ = false;
};

}  // namespace gradus
