// What the ranks of a run say to each other: collectives and messages, each begun by a call and finished by
// wait(). A strategy (data_parallel.h, zero.h) is written once against this; what carries the bytes is a
// choice: ranks simulated in this process (cluster.h), processes under MPI, GPUs under NCCL.
//
// Sums are taken in rank order, ((x_0 + x_1) + x_2) + ..., in fp32 and rounded once, at the rank that owns
// the part; each rank sends (N-1)/N of the elements each way, as in a ring (Patarasuk & Yuan 2009,
// "Bandwidth optimal all-reduce algorithms"). So a result is the same to the bit whatever carries it, but
// for NCCL, which adds in an order of its own.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "src/tensor/tensor.h"

namespace gradus {

// Something that was begun. Until wait() has returned its tensors belong to it: they may not be written to,
// and what it makes may not be read. A second wait() does nothing.
class Work {
 public:
  virtual ~Work() = default;
  virtual void wait() = 0;
};

// That of the implementations: calls `finish`, the first time.
class OnWait : public Work {
 public:
  explicit OnWait(std::function<void()> finish) : finish_(std::move(finish)) {}
  void wait() override {
    if (finish_) std::exchange(finish_, nullptr)();
  }

 private:
  std::function<void()> finish_;
};

struct Sent {  // what a rank has sent
  int64_t elements = 0, bytes = 0, messages = 0;
};

enum class Collective : uint8_t { AllReduce, ReduceScatter, AllGather, Broadcast, Barrier };

// A rank's part in a collective.
struct Offer {
  Collective what;
  Tensor x = {}, y = {};  // what goes in and what comes out; the same for those that work in place
  int64_t root = 0;       // of a broadcast
  // The elements that are summed or gathered, or sent from the root.
  int64_t numel() const;
  DType dtype() const { return x.defined() ? x.dtype() : DType::U8; }
  std::string text() const { return text_of(what, numel(), dtype(), root); }
  static std::string text_of(Collective what, int64_t numel, DType t,
                             int64_t root);  // "all_reduce of 10 fp32"
  bool matches(const Offer& o) const {
    return what == o.what && numel() == o.numel() && dtype() == o.dtype() && root == o.root;
  }
};

// Of n elements the part that a rank owns: parts have the same size, but the last ones may be shorter or
// empty.
struct Part {
  int64_t begin, count;
};
constexpr Part part_of(int64_t n, int64_t rank, int64_t ranks) {
  const int64_t each = (n + ranks - 1) / ranks, begin = std::min(n, rank * each);
  return {begin, std::min(each, n - begin)};
}

class Comm {
 public:
  virtual ~Comm() = default;
  Comm(const Comm&) = delete;
  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }
  const Sent& sent() const { return sent_; }

  // All ranks call these in the same order, with the same sizes and dtypes; otherwise all of them end, with
  // an Error that names the rank and the call.
  // x <- the sum of all ranks' x. fp32, bf16 or fp16, as for reduce_scatter.
  std::unique_ptr<Work> all_reduce(const Tensor& x);
  // y (n elements) <- part `rank` of the sum of all x (N n elements). y may be that part of x.
  std::unique_ptr<Work> reduce_scatter(const Tensor& x, const Tensor& y);
  // y (N n elements) <- the x (n elements) of all ranks, in rank order. x may be part `rank` of y. Any dtype.
  std::unique_ptr<Work> all_gather(const Tensor& x, const Tensor& y);
  // x <- the root's x. Any dtype.
  std::unique_ptr<Work> broadcast(const Tensor& x, int64_t root);
  void barrier();  // returns when all ranks have called it

  // Messages from one rank to another arrive in the order in which they are sent. send() copies x, so its
  // wait() never waits for the other's recv(). Any dtype; an error if recv() expects another size or dtype.
  std::unique_ptr<Work> send(const Tensor& x, int64_t to);
  std::unique_ptr<Work> recv(const Tensor& x, int64_t from);

  virtual double seconds() = 0;  // this rank's clock: the simulated one, or the machine's

 protected:
  Comm(int64_t rank, int64_t size) : rank_(rank), size_(size) {}
  virtual std::unique_ptr<Work> begin(const Offer&) = 0;
  virtual std::unique_ptr<Work> begin_send(const Tensor& x, int64_t to) = 0;
  virtual std::unique_ptr<Work> begin_recv(const Tensor& x, int64_t from) = 0;

 private:
  void count(int64_t elements, DType t, int64_t messages);
  void check_other(const char* call, int64_t rank) const;

  int64_t rank_, size_;
  Sent sent_;
};

}  // namespace gradus
