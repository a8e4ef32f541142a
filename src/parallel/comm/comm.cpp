#include "src/parallel/comm/comm.h"

namespace gradus {

constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "barrier"};

int64_t Offer::numel() const {
  if (what == Collective::Barrier) return 0;
  return what == Collective::AllGather ? y.numel() : x.numel();
}

std::string Offer::text_of(Collective what, int64_t numel, DType t, int64_t root) {
  std::ostringstream s;
  s << kNames[int(what)];
  if (what != Collective::Barrier) s << " of " << numel << " " << name_of(t);
  if (what == Collective::Broadcast) s << " from rank " << root;
  return s.str();
}

static void check_sum(const char* call, const Tensor& x) {
  check(x.defined(), call, ": the tensor is undefined");
  check(x.dtype() == DType::F32 || size_of(x.dtype()) == 2, call,
        ": sums are taken of fp32, bf16 and fp16, x is ", name_of(x.dtype()));
}

// Both may share their memory, if the part lies where the rank's own part is.
static void check_parts(const Comm& comm, const char* call, const Tensor& whole, const Tensor& part) {
  check(part.numel() * comm.size() == whole.numel() && part.dtype() == whole.dtype(), call, ": ", comm.size(),
        " parts ", part.shape(), " ", name_of(part.dtype()), " do not make ", whole.shape(), " ",
        name_of(whole.dtype()));
  const char *w = whole.in().as<char>(), *p = part.in().as<char>();
  check(p + part.bytes() <= w || p >= w + whole.bytes() || p == w + comm.rank() * part.bytes(), call,
        ": the part and the whole overlap, and the part is not where that of rank ", comm.rank(), " lies");
}

// Of a sum every part goes to its owner, and from there to all others, if they are to have it; with equal
// parts that is as much as in a ring. A broadcast goes from rank to rank, so all but the last send it on.
std::unique_ptr<Work> Comm::all_reduce(const Tensor& x) {
  check_sum("all_reduce", x);
  const Offer offer{Collective::AllReduce, x, x};
  const int64_t own = part_of(x.numel(), rank_, size_).count;
  count(x.numel() - own + (size_ - 1) * own, x.dtype(), 2 * (size_ - 1));
  return begin(offer);
}

std::unique_ptr<Work> Comm::reduce_scatter(const Tensor& x, const Tensor& y) {
  check_sum("reduce_scatter", x);
  check_parts(*this, "reduce_scatter", x, y);
  const Offer offer{Collective::ReduceScatter, x, y};
  count(x.numel() - y.numel(), x.dtype(), size_ - 1);
  return begin(offer);
}

std::unique_ptr<Work> Comm::all_gather(const Tensor& x, const Tensor& y) {
  check_parts(*this, "all_gather", y, x);
  const Offer offer{Collective::AllGather, x, y};
  count((size_ - 1) * x.numel(), x.dtype(), size_ - 1);
  return begin(offer);
}

std::unique_ptr<Work> Comm::broadcast(const Tensor& x, int64_t root) {
  check(x.defined(), "broadcast: the tensor is undefined");
  check(root >= 0 && root < size_, "broadcast: rank ", root, " does not exist; there are ", size_);
  const Offer offer{Collective::Broadcast, x, x, root};
  const bool last = rank_ == (root + size_ - 1) % size_;
  count(last ? 0 : x.numel(), x.dtype(), last ? 0 : 1);
  return begin(offer);
}

void Comm::barrier() { begin({Collective::Barrier})->wait(); }

std::unique_ptr<Work> Comm::send(const Tensor& x, int64_t to) {
  check_other("send", to);
  count(x.numel(), x.dtype(), 1);
  return begin_send(x, to);
}

std::unique_ptr<Work> Comm::recv(const Tensor& x, int64_t from) {
  check_other("recv", from);
  return begin_recv(x, from);
}

void Comm::count(int64_t elements, DType t, int64_t messages) {
  sent_.elements += elements;
  sent_.bytes += elements * size_of(t);
  sent_.messages += messages;
}

void Comm::check_other(const char* call, int64_t rank) const {
  check(rank >= 0 && rank < size_ && rank != rank_, call, ": rank ", rank, " is not another one of the ",
        size_, " ranks; this is rank ", rank_);
}

}  // namespace gradus
