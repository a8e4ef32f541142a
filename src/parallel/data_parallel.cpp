#include "src/parallel/data_parallel.h"

#include <utility>

#include "src/tensor/context.h"

namespace gradus {

static void check_whole(const Parameters& parameters) {
  check(!*parameters.shares || !(*parameters.shares)->sums_gradients(),
        "data parallel: the parameters are sharded by Zero, which sums their gradients");
}

void sum_gradients(Comm& comm, Parameters& parameters) {
  check_whole(parameters);
  for (Parameter& p : parameters) {
    if (!p.trainable()) continue;
    check_gradient(p);
    // BEGIN SOLUTION 17.2
    comm.all_reduce(p.leaf.grad)->wait();
    // STUB: todo("17.2", "the sum of all ranks' gradients of this parameter", comm);
    // END SOLUTION 17.2
  }
}

GradientBuckets::GradientBuckets(Comm& comm, Parameters& parameters, int64_t bucket_bytes)
    : comm_(comm), parameters_(parameters) {
  check_whole(parameters);
  check(bucket_bytes > 0, "data parallel: buckets of ", bucket_bytes, " bytes; they must hold something");
  std::vector<Parameter*> last_first, bucket;
  for (Parameter& p : parameters)
    if (p.trainable()) last_first.insert(last_first.begin(), &p);
  int64_t bytes = 0;
  for (Parameter* p : last_first) {
    bucket.push_back(p);
    bytes += p->value.numel() * size_of(p->precision.gradient);
    if (bytes < bucket_bytes && p != last_first.back()) continue;
    add_bucket(std::exchange(bucket, {}));
    bytes = 0;
  }
  parameters.on_zero_grad = [this] { end(); };
}

void GradientBuckets::add_bucket(const std::vector<Parameter*>& parameters) {
  Bucket& b = buckets_.emplace_back();
  for (Parameter* p : parameters) b.add(*p);
  b.pad(comm_.size());
  b.gradients = Tensor(current().device, {b.numel}, parameters[0]->precision.gradient, Kind::Gradient,
                       "bucket " + std::to_string(buckets_.size()));
  for (size_t i = 0; i < parameters.size(); ++i) {
    Leaf& leaf = parameters[i]->leaf;
    leaf.grad = b.whole(b.gradients, i);
    leaf.zero();
    leaf.on_final = [this, &b](Leaf& l) {
      check(!b.work, "the gradient of '", l.name,
            "' was added to while its bucket is summed; sum_during_backward() is for the last backward pass");
      one_is_final(b);
    };
  }
}

// Called when a gradient of the bucket is final in this backward pass. Sums begin in the order of the
// buckets, the same on all ranks, whatever the order in which gradients become final.
void GradientBuckets::one_is_final(Bucket& b) {
  // BEGIN SOLUTION 17.5
  if (!during_backward_) return;
  ++b.final;
  while (begun_ < buckets_.size() && buckets_[begun_].final == buckets_[begun_].parameters.size())
    begin(buckets_[begun_]);
  // STUB: todo("17.5", "count, and begin to sum the buckets whose turn it is", b);
  // END SOLUTION 17.5
}

GradientBuckets::~GradientBuckets() {
  parameters_.on_zero_grad = nullptr;
  for (const Bucket& b : buckets_) b.detach();
}

void GradientBuckets::begin(Bucket& b) {
  for (const Parameter* p : b.parameters) {
    check_gradient(*p);
    check(&p->leaf.grad.storage() == &b.gradients.storage(), "the gradient of '", p->name,
          "' has left its bucket; take zero_grad(), not drop_grad()");
  }
  b.work = comm_.all_reduce(b.gradients);
  ++begun_;
}

void GradientBuckets::sum() {
  while (begun_ < buckets_.size()) begin(buckets_[begun_]);
  end();
}

void GradientBuckets::end() {
  for (Bucket& b : buckets_) {
    if (b.work) std::exchange(b.work, nullptr)->wait();
    b.final = 0;
  }
  begun_ = 0;
  during_backward_ = false;
}

}  // namespace gradus
