// Data parallelism: every rank has the whole model and a part of each batch; before the update the ranks add
// up their gradients. With losses weighted by their share of the batch (cross_entropy's `count`) the sum is
// the gradient of the whole batch; so all ranks make the same update, and stay equal.
#pragma once
#include <deque>
#include <memory>

#include "src/parallel/comm/comm.h"
#include "src/parallel/flat.h"

namespace gradus {

// The plain way: one all-reduce for each parameter, after the backward pass.
void sum_gradients(Comm& comm, Parameters& parameters);

// Gradients in buckets: they lie side by side in buffers of `bucket_bytes` or a little more, and one
// all-reduce serves a bucket (Li et al. 2020, "PyTorch distributed: experiences on accelerating data parallel
// training", sec. 3.2). The last parameters, whose gradients are final first, are in the first bucket.
class GradientBuckets {
 public:
  // The gradients of parameters that train move into the buckets, for as long as they live. Give them back no
  // memory (drop_grad) until then.
  GradientBuckets(Comm& comm, Parameters& parameters, int64_t bucket_bytes);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;

  // From now on, until sum(), a backward pass begins to sum a bucket as soon as its gradients are final. To
  // be called before the last backward pass of a step.
  void sum_during_backward() { during_backward_ = true; }
  // Begins to sum what has not begun, and waits for all. Every parameter must have a gradient. After a pass
  // that an error has ended on all ranks, zero_grad() waits for what had begun, and forgets it.
  void sum();
  int64_t buckets() const { return int64_t(buckets_.size()); }
  // Of all buckets, with the padding to a multiple of the number of ranks.
  int64_t numel() const { return numel_of(buckets_); }

 private:
  struct Bucket : FlatParameters {
    Tensor gradients;
    size_t final = 0;  // so many of them are
    std::unique_ptr<Work> work;
  };
  void add_bucket(const std::vector<Parameter*>& parameters);
  void one_is_final(Bucket& bucket);
  void begin(Bucket& bucket);
  void end();

  Comm& comm_;
  Parameters& parameters_;
  std::deque<Bucket> buckets_;
  size_t begun_ = 0;  // so many sums, from the first bucket on
  bool during_backward_ = false;
};

}  // namespace gradus
