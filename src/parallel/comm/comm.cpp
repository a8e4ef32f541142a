#include "src/parallel/comm/comm.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/tensor/call.h"
#include "src/tensor/profile_range.h"

namespace gradus {

constexpr const char* kNames[] = {"all_reduce", "reduce_scatter",           "all_gather", "broadcast",
                                  "barrier",    "all_reduce, the largest,", "split"};

// Counts an operation as open until wait() has returned or the operation is destroyed.
class Comm::Open : public Work {
 public:
  Open(const char* what, std::unique_ptr<Work> work, std::shared_ptr<State> comm)
      : what_(what), work_(std::move(work)), comm_(std::move(comm)) {
    ++comm_->open;
  }
  ~Open() override { close(); }
  void wait() override {
    if (!comm_) return;
    check(!comm_->ended, "an operation is waited for after its Comm has ended");
    const ProfileRange range(what_);
    work_->wait();
    close();
  }

 private:
  void close() {
    if (comm_) --std::exchange(comm_, nullptr)->open;
  }
  const char* what_;
  std::unique_ptr<Work> work_;
  std::shared_ptr<State> comm_;
};

Comm::Comm(int64_t self, std::vector<int64_t> members, const std::string& group)
    : rank_(std::find(members.begin(), members.end(), self) - members.begin()), members_(std::move(members)) {
  if (group.empty()) return;
  constexpr size_t kMostListed = 8;
  where_ = " in group '" + group + "' of ranks ";
  for (size_t r = 0; r < members_.size() && r < kMostListed; ++r)
    where_ += (r == 0 ? "" : ", ") + std::to_string(members_[r]);
  if (members_.size() > kMostListed) where_ += " and so on";
}

std::unique_ptr<Comm> Comm::split(const std::string& name, int64_t color) {
  refuse_in_captured_step();
  check(!name.empty(), "split: a group needs a name, for errors and timelines");
  check(color >= 0, "split into '", name, "': colour ", color,
        "; every rank gives the number of its group, 0 or more");
  check(state_->open == 0, "split into '", name, "': ", state_->open, " calls of this rank", where_,
        " have begun and are not waited for; wait for them first");
  return begin_split(name, color);
}

// The replay of a captured step would not wait.
void Comm::refuse_in_captured_step() const {
  check(!current().captured_step, "a captured step cannot wait for other ranks", where_,
        "; run the steps without CapturedStep");
}

std::unique_ptr<Work> Comm::begin_counted(const Offer& offer, int64_t elements, int64_t messages) {
  refuse_in_captured_step();
  const char* const name = kNames[int(offer.what)];
  count(elements, offer.dtype(), messages);
  const ProfileRange range(name, elements * size_of(offer.dtype()));
  return std::make_unique<Open>(name, begin(offer), state_);
}

int64_t Offer::numel() const {
  if (what == Collective::Barrier || what == Collective::Split) return 0;
  return what == Collective::AllGather ? y.numel() : x.numel();
}

std::string Offer::text() const {
  return text_of(what, numel(), dtype(), root) + (what == Collective::Split ? " into '" + name + "'" : "");
}

std::string Offer::text_of(Collective what, int64_t numel, DType t, int64_t root) {
  std::ostringstream s;
  s << kNames[int(what)];
  if (what != Collective::Barrier && what != Collective::Split) s << " of " << numel << " " << name_of(t);
  if (what == Collective::Broadcast) s << " from rank " << root;
  return s.str();
}

std::vector<int64_t> first_ranks(int64_t count) {
  std::vector<int64_t> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

static void check_sum(const char* call, const Tensor& x) {
  check(x.defined(), call, ": the tensor is undefined");
  check(x.dtype() == DType::F32 || size_of(x.dtype()) == 2, call, ": x must be fp32, bf16 or fp16, not ",
        name_of(x.dtype()));
}

// The part may lie in the whole's memory, if it lies where the rank's own part is.
static void check_parts(const Comm& comm, const char* call, const Tensor& whole, const Tensor& part) {
  check(part.numel() * comm.size() == whole.numel() && part.dtype() == whole.dtype(), call, ": ", comm.size(),
        " parts ", part.shape(), " ", name_of(part.dtype()), " do not make ", whole.shape(), " ",
        name_of(whole.dtype()));
  const char *w = whole.in().as<char>(), *p = part.in().as<char>();
  check(p + part.bytes() <= w || p >= w + whole.bytes() || p == w + comm.rank() * part.bytes(), call,
        ": the part and the whole overlap, but it is not where the part of rank ", comm.rank(), " lies");
}

// In a sum every part goes to its owner, and in an all_reduce from there to all other ranks; with equal parts
// that is as much as in a ring. A broadcast goes from rank to rank, so all ranks but the last send it on.
std::unique_ptr<Work> Comm::all_reduce(const Tensor& x, Reduce reduce) {
  check_sum("all_reduce", x);
  const Offer offer{reduce == Reduce::Sum ? Collective::AllReduce : Collective::AllReduceMax, x, x};
  const int64_t own = part_of(x.numel(), rank_, size()).count;
  return begin_counted(offer, x.numel() - own + (size() - 1) * own, 2 * (size() - 1));
}

std::unique_ptr<Work> Comm::reduce_scatter(const Tensor& x, const Tensor& y) {
  check_sum("reduce_scatter", x);
  check_parts(*this, "reduce_scatter", x, y);
  return begin_counted({Collective::ReduceScatter, x, y}, x.numel() - y.numel(), size() - 1);
}

std::unique_ptr<Work> Comm::all_gather(const Tensor& x, const Tensor& y) {
  check_parts(*this, "all_gather", y, x);
  return begin_counted({Collective::AllGather, x, y}, (size() - 1) * x.numel(), size() - 1);
}

std::unique_ptr<Work> Comm::broadcast(const Tensor& x, int64_t root) {
  check(x.defined(), "broadcast: the tensor is undefined");
  check(root >= 0 && root < size(), "broadcast: rank ", root, " does not exist; there are ", size(), where_);
  const bool last = rank_ == (root + size() - 1) % size();
  return begin_counted({Collective::Broadcast, x, x, root}, last ? 0 : x.numel(), last ? 0 : 1);
}

void Comm::barrier() { begin_counted({Collective::Barrier}, 0, 0)->wait(); }

// Each rank begins with the next rank, so no two send to the same rank at the same time.
std::unique_ptr<Work> Comm::all_to_all(const Tensor& x, const std::vector<int64_t>& counts, const Tensor& y,
                                       const std::vector<int64_t>& from_counts) {
  const auto begins = [&](const char* what, const Tensor& t, const std::vector<int64_t>& n) {
    check(t.defined(), "all_to_all: ", what, " is undefined");
    check(int64_t(n.size()) == size(), "all_to_all: ", n.size(), " counts for ", what, ", and there are ",
          size(), " ranks", where_);
    std::vector<int64_t> begin(n.size() + 1);
    std::partial_sum(n.begin(), n.end(), begin.begin() + 1);
    check(*std::min_element(n.begin(), n.end()) >= 0 && begin.back() == t.numel(),
          "all_to_all: the counts for ", what, " add up to ", begin.back(), ", and it has ", t.numel(),
          " elements; none may be below 0");
    return begin;
  };
  const std::vector<int64_t> out = begins("x", x, counts), in = begins("y", y, from_counts);
  check(x.dtype() == y.dtype(), "all_to_all: x is ", name_of(x.dtype()), ", y is ", name_of(y.dtype()));
  std::vector<Transfer> sends, recvs;
  for (int64_t i = 0; i < size(); ++i) {
    const int64_t to = (rank_ + i) % size(), from = (rank_ + size() - i) % size();
    sends.push_back(
        {x.detach().reshape({x.numel()}).narrow(out[size_t(to)], counts[size_t(to)]), to, kAllToAll});
    recvs.push_back({y.detach().reshape({y.numel()}).narrow(in[size_t(from)], from_counts[size_t(from)]),
                     from, kAllToAll});
    if (i > 0 && counts[size_t(to)] > 0) count(counts[size_t(to)], x.dtype(), 1);
  }
  return begin_all("all_to_all", sends, recvs);
}

std::unique_ptr<Work> Comm::send(const Tensor& x, int64_t to, int64_t tag) {
  return messages("send", {{x, to, tag}}, {});
}

std::unique_ptr<Work> Comm::recv(const Tensor& x, int64_t from, int64_t tag) {
  return messages("recv", {}, {{x, from, tag}});
}

std::unique_ptr<Work> Comm::exchange(const std::vector<Transfer>& sends, const std::vector<Transfer>& recvs) {
  return messages("exchange", sends, recvs);
}

std::unique_ptr<Work> Comm::messages(const char* name, const std::vector<Transfer>& sends,
                                     const std::vector<Transfer>& recvs) {
  for (const Transfer& s : sends) check_message("send", s);
  for (const Transfer& r : recvs) check_message("recv", r);
  for (const Transfer& s : sends) count(s.x.numel(), s.x.dtype(), 1);
  return begin_all(name, sends, recvs);
}

std::unique_ptr<Work> Comm::begin_all(const char* name, const std::vector<Transfer>& sends,
                                      const std::vector<Transfer>& recvs) {
  refuse_in_captured_step();
  int64_t bytes = 0;
  for (const Transfer& s : sends) bytes += s.x.bytes();
  const ProfileRange range(name, bytes);
  auto works = std::make_shared<std::vector<std::unique_ptr<Work>>>();
  begin_together([&] {
    for (const Transfer& s : sends) works->push_back(begin_send(s));
    for (const Transfer& r : recvs) works->push_back(begin_recv(r));
  });
  const auto wait = [works] {
    for (const auto& work : *works) work->wait();
  };
  return std::make_unique<Open>(name, std::make_unique<OnWait>(wait), state_);
}

std::string Comm::recv_text(const Transfer& r) const {
  std::ostringstream s;
  s << (r.tag == kAllToAll ? "all_to_all: recv of " : "recv of ") << r.x.numel() << " "
    << name_of(r.x.dtype()) << " from rank " << members_[size_t(r.rank)];
  if (r.tag > 0) s << ", tag " << r.tag;
  s << where_;
  return s.str();
}

void Comm::count(int64_t elements, DType t, int64_t messages) {
  sent_.elements += elements;
  sent_.bytes += elements * size_of(t);
  sent_.messages += messages;
}

void Comm::check_message(const char* call, const Transfer& t) const {
  check(t.rank >= 0 && t.rank < size() && t.rank != rank_, call, ": rank ", t.rank,
        " is not one of the other ranks; there are ", size(), where_, ", and this is rank ", rank_);
  check(t.x.defined(), call, ": the tensor is undefined");
  check(t.tag >= 0, call, ": tag ", t.tag, "; tags are 0 or more");
}

void take(const Transfer& r, const std::string& what, int64_t numel, DType t,
          const std::vector<char>& bytes) {
  Tensor to = r.x;
  check(numel == to.numel() && t == to.dtype(), what, ": what was sent are ", numel, " ", name_of(t));
  to.device().copy_in(to.set().p, bytes.data(), to.bytes());
}

void fold(Tensor& sum, CBuf x, int64_t n, Collective what, bool first) {
  if (first || what != Collective::AllReduceMax)
    return be(sum).cast(sum.device().ctx(), n, x, sum.out(first ? Write::Set : Write::Add));
  visit_float("all_reduce", x.t, [&]<class T>() {
    float* const largest = sum.set().as<float>();
    for (int64_t i = 0; i < n; ++i) {
      const float other = float(x.as<T>()[i]);
      if (!(largest[i] >= other || std::isnan(largest[i]))) largest[i] = other;
    }
  });
}

}  // namespace gradus
