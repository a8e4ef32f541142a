// What the ranks of a run say to each other: collectives and messages, each begun by a call and finished by
// wait(). A strategy (data_parallel.h, zero.h) is written once against this; what carries the bytes is a
// choice: ranks simulated in this process (cluster.h), processes under MPI, GPUs under NCCL. A Comm is of all
// ranks, or of a group of them.
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
#include <vector>

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

enum class Reduce : uint8_t { Sum, Max };  // Max: of a NaN and a number, NaN (with NCCL it may be the number)

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

// A rank's part in a collective.
struct Offer {
  Collective what;
  Tensor x = {}, y = {};  // what goes in and what comes out; the same for those that work in place
  int64_t root = 0;       // of a broadcast; of a split this rank's colour
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
  int64_t rank;  // the other one
  int64_t tag = 0;
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

std::vector<int64_t> first_ranks(int64_t count);  // 0 to count - 1

class Comm {
 public:
  virtual ~Comm() { state_->ended = true; }
  Comm(const Comm&) = delete;
  int64_t rank() const { return rank_; }  // in this group
  int64_t size() const { return int64_t(members_.size()); }
  const Sent& sent() const { return sent_; }  // by way of this Comm
  // The ranks of the run that it is of, in order. Errors and timelines speak of those.
  const std::vector<int64_t>& members() const { return members_; }
  // What they add where it is not of all ranks: " in group 'tensor' of ranks 0, 2".
  const std::string& where() const { return where_; }

  // A Comm of those ranks of this one that give the same colour, 0 or more, in their order. All ranks call
  // it, when nothing that was begun with this Comm is still to be waited for. It outlives what is begun with
  // it. Collectives of different groups have no order: ranks that have several groups in common may begin
  // theirs in different orders (but not with NCCL, where whoever begins waits until the others have come).
  std::unique_ptr<Comm> split(const std::string& name, int64_t color);

  // All ranks call these in the same order, with the same sizes and dtypes; otherwise all of them end, with
  // an Error that names the rank and the call.
  // x <- the sum, or the largest element, of all ranks' x. fp32, bf16 or fp16, as for reduce_scatter.
  std::unique_ptr<Work> all_reduce(const Tensor& x, Reduce reduce = Reduce::Sum);
  // y (n elements) <- part `rank` of the sum of all x (N n elements). y may be that part of x.
  std::unique_ptr<Work> reduce_scatter(const Tensor& x, const Tensor& y);
  // y (N n elements) <- the x (n elements) of all ranks, in rank order. x may be part `rank` of y. Any dtype.
  std::unique_ptr<Work> all_gather(const Tensor& x, const Tensor& y);
  // x <- the root's x. Any dtype.
  std::unique_ptr<Work> broadcast(const Tensor& x, int64_t root);
  void barrier();  // returns when all ranks have called it

  // counts[r] elements of x go to rank r, from_counts[r] of y come from it, each in rank order. Any dtype.
  // What two ranks expect of each other must be the same; counts may be 0.
  std::unique_ptr<Work> all_to_all(const Tensor& x, const std::vector<int64_t>& counts, const Tensor& y,
                                   const std::vector<int64_t>& from_counts);

  // Messages from one rank to another with the same tag, 0 or more, arrive in the order in which they are
  // sent. send() copies x, so its wait() never waits for the other's recv(). Any dtype; an error if recv()
  // expects another size or dtype. A message that nobody has received is an error where the run ends (sim).
  std::unique_ptr<Work> send(const Tensor& x, int64_t to, int64_t tag = 0);
  std::unique_ptr<Work> recv(const Tensor& x, int64_t from, int64_t tag = 0);
  // All of them at once: none waits for another one, in whatever order the other ranks have them.
  std::unique_ptr<Work> exchange(const std::vector<Transfer>& sends, const std::vector<Transfer>& recvs);

  virtual double seconds() = 0;  // this rank's clock: the simulated one, or the machine's

 protected:
  static constexpr int64_t kAllToAll = -1;  // the tag of its messages, of which one may be to oneself
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
  std::unique_ptr<Work> begin_counted(const Offer& offer, int64_t elements, int64_t messages);  // sent
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

// For implementations, of tensors in host memory: sum[0..n) <- x, or with what is there the sum or the
// larger.
void fold(Tensor& sum, CBuf x, int64_t n, Collective what, bool first);
constexpr int64_t kPiece = int64_t(1) << 16;  // elements that are summed at a time, in a buffer of the owner
// r.x <- the message that came, if it is of that size and dtype.
void take(const Transfer& r, const std::string& what, int64_t numel, DType t, const std::vector<char>& bytes);

}  // namespace gradus
