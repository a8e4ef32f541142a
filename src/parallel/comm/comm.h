// Collectives and messages between the ranks of a run: a call begins one, and wait() finishes it. A strategy
// (data_parallel.h, zero.h) is written once against this interface; the transport is a choice: ranks
// simulated in this process (cluster.h), processes under MPI, GPUs under NCCL. A Comm connects all ranks, or
// a group of them.
//
// Sums are added in rank order, ((x_0 + x_1) + x_2) + ..., in fp32, and rounded once, by the rank that owns
// the part. A reduce-scatter or an all-gather sends (N-1)/N of the elements per rank, an all-reduce both, as
// in a ring (Patarasuk & Yuan 2009, "Bandwidth optimal all-reduce algorithms"). So results are bitwise equal
// for all transports except NCCL, which adds in a different order.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/tensor/tensor.h"

namespace gradus {

// An operation that has begun. Until wait() has returned, its tensors belong to it: the caller must not write
// to them, nor read its results. A second wait() does nothing.
class Work {
 public:
  virtual ~Work() = default;
  virtual void wait() = 0;
};

// The Work of the implementations: the first wait() calls `finish`.
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

enum class Reduce : uint8_t { Sum, Max };  // Max: NaN and a number give NaN (NCCL: maybe the number)

enum class Collective : uint8_t {
  AllReduce,
  ReduceScatter,
  AllGather,
  Broadcast,
  Barrier,
  AllReduceMax,
  Split
};

constexpr bool is_all_reduce(Collective what) {
  return what == Collective::AllReduce || what == Collective::AllReduceMax;
}

// What a rank passes to a collective.
struct Offer {
  Collective what;
  Tensor x = {}, y = {};  // input and output; the same tensor if the collective works in place
  int64_t root = 0;       // of a broadcast; for a split: this rank's colour
  std::string name = {};  // of a split's groups
  // The elements that are summed or gathered, or sent from the root.
  int64_t numel() const;
  DType dtype() const { return x.defined() ? x.dtype() : DType::U8; }
  std::string text() const;  // "all_reduce of 10 fp32"
  static std::string text_of(Collective what, int64_t numel, DType t, int64_t root);
  bool matches(const Offer& o) const {
    return what == o.what && numel() == o.numel() && dtype() == o.dtype() &&
           (what == Collective::Split ? name == o.name : root == o.root);
  }
};

// One side of a message.
struct Transfer {
  Tensor x;
  int64_t rank;  // of the other side
  int64_t tag = 0;
};

// Rank r owns part r of n elements. Parts have the same size, but the last ones may be shorter or
// empty.
struct Part {
  int64_t begin, count;
};
constexpr Part part_of(int64_t n, int64_t rank, int64_t ranks) {
  const int64_t each = (n + ranks - 1) / ranks, begin = std::min(n, rank * each);
  return {begin, std::min(each, n - begin)};
}

std::vector<int64_t> first_ranks(int64_t count);  // 0 to count - 1

class Comm {
 public:
  virtual ~Comm() { state_->ended = true; }
  Comm(const Comm&) = delete;
  int64_t rank() const { return rank_; }  // in this group
  int64_t size() const { return int64_t(members_.size()); }
  const Sent& sent() const { return sent_; }  // through this Comm
  // The ranks of the run that this Comm connects, in order. Errors and timelines use these numbers.
  const std::vector<int64_t>& members() const { return members_; }
  // For error messages: " in group 'tensor' of ranks 0, 2"; empty for the Comm of all ranks.
  const std::string& where() const { return where_; }

  // Returns a Comm of this Comm's ranks that give the same colour (0 or more), in their order. All ranks call
  // it, after they have waited for everything that they began with this Comm. A Comm must outlive its
  // operations. Collectives of different groups have no order: ranks that share several groups may begin
  // their collectives in different orders (not with NCCL, where the first rank waits for the others).
  std::unique_ptr<Comm> split(const std::string& name, int64_t color);

  // All ranks call these in the same order, with the same sizes and dtypes; otherwise the run ends with an
  // Error that names the rank and the call.
  // x <- the sum, or the largest element, of all ranks' x. fp32, bf16 or fp16, as for reduce_scatter.
  std::unique_ptr<Work> all_reduce(const Tensor& x, Reduce reduce = Reduce::Sum);
  // y (n elements) <- part `rank` of the sum of all x (N n elements). y may be that part of x.
  std::unique_ptr<Work> reduce_scatter(const Tensor& x, const Tensor& y);
  // y (N n elements) <- the x (n elements) of all ranks, in rank order. x may be part `rank` of y. Any dtype.
  std::unique_ptr<Work> all_gather(const Tensor& x, const Tensor& y);
  // x <- the root's x. Any dtype.
  std::unique_ptr<Work> broadcast(const Tensor& x, int64_t root);
  void barrier();  // returns when all ranks have called it

  // Sends counts[r] elements of x to rank r, and receives from_counts[r] elements of y from it, each in rank
  // order. Any dtype. Sender and receiver must give the same count; it may be 0.
  std::unique_ptr<Work> all_to_all(const Tensor& x, const std::vector<int64_t>& counts, const Tensor& y,
                                   const std::vector<int64_t>& from_counts);

  // Messages from one rank to another with the same tag (0 or more) arrive in the order in which they are
  // sent. send() copies x, so its wait() never waits for recv(). Any dtype; an error if recv() expects a
  // different size or dtype. A message that no rank has received is an error at the end of the run (sim).
  std::unique_ptr<Work> send(const Tensor& x, int64_t to, int64_t tag = 0);
  std::unique_ptr<Work> recv(const Tensor& x, int64_t from, int64_t tag = 0);
  // Begins all of them at once: none waits for another, whatever their order on the other ranks.
  std::unique_ptr<Work> exchange(const std::vector<Transfer>& sends, const std::vector<Transfer>& recvs);

  virtual double seconds() = 0;  // this rank's clock: the simulated one, or the machine's

 protected:
  static constexpr int64_t kAllToAll = -1;  // tag of all_to_all; a rank may send to itself
  // self: this rank's number in the run.
  Comm(int64_t self, std::vector<int64_t> members, const std::string& group = "");
  virtual std::unique_ptr<Work> begin(const Offer&) = 0;
  virtual std::unique_ptr<Work> begin_send(const Transfer&) = 0;
  virtual std::unique_ptr<Work> begin_recv(const Transfer&) = 0;
  virtual void begin_together(const std::function<void()>& all) { all(); }
  virtual std::unique_ptr<Comm> begin_split(const std::string& name, int64_t color) = 0;

  std::string recv_text(const Transfer&) const;  // "recv of 10 fp32 from rank 3, tag 5"

 private:
  class Open;
  void refuse_in_captured_step() const;
  // elements, messages: what this rank sends.
  std::unique_ptr<Work> begin_counted(const Offer& offer, int64_t elements, int64_t messages);
  std::unique_ptr<Work> messages(const char* name, const std::vector<Transfer>& sends,
                                 const std::vector<Transfer>& recvs);
  std::unique_ptr<Work> begin_all(const char* name, const std::vector<Transfer>& sends,
                                  const std::vector<Transfer>& recvs);
  void count(int64_t elements, DType t, int64_t messages);
  void check_message(const char* call, const Transfer&) const;

  int64_t rank_;
  std::vector<int64_t> members_;
  std::string where_;
  Sent sent_;
  struct State {
    int64_t open = 0;  // begun and not waited for
    bool ended = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// For implementations, with tensors in host memory: sum[0..n) <- x if it is the first, else sum + x or
// max(sum, x).
void fold(Tensor& sum, CBuf x, int64_t n, Collective what, bool first);
constexpr int64_t kPiece = int64_t(1) << 16;  // elements per step of a sum, in the owner's buffer
// r.x <- the received message; an error if r.x has a different size or dtype.
void take(const Transfer& r, const std::string& what, int64_t numel, DType t, const std::vector<char>& bytes);

}  // namespace gradus
