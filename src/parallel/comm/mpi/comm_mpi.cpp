// Comm over MPI: real processes. Any MPI will do; collectives are made of messages, so that sums are taken in
// rank order. A rank sends what it has when a collective begins; the rest is done by a fiber, one collective
// after the other, which goes on whenever the rank waits for anything, or begins the next.
#include <deque>
#include <list>
#include <map>

#include "kernels/fiber.h"
#include "src/parallel/comm/mpi/requests.h"
#include "src/parallel/comm/processes.h"
#include "src/tensor/call.h"

namespace gradus {
namespace {

constexpr int64_t kPiece = int64_t(1) << 16;  // elements that are summed at a time
constexpr int64_t kCalls = 8000;              // tags tell so many calls apart, and the stages of each
enum Stage : int { kHeader, kParts, kWholes };
int tag_of(int64_t call, Stage stage) { return int(call % kCalls) * 4 + stage; }

struct Operation {  // a collective that has begun
  int64_t number;
  Offer offer;
  Header mine;
  Requests sending;
  bool done = false;
};

struct Letter {  // a message that is being sent
  Header header;
  std::vector<char> bytes;
  Requests sending;
};

class MpiComm : public Comm {
 public:
  explicit MpiComm(Process self)
      : Comm(self.rank, self.count),
        began_(seconds_now()),
        sum_(current().device, {kPiece}, DType::F32, Kind::Comm, "sum of parts"),
        received_(current().device, {kPiece}, DType::F32, Kind::Comm, "received part") {
    check(current().device.allocator().source().on_host(),
          "--comm=mpi carries host memory, and the device is ", current().device.name(),
          "; take cpu or emu, or --comm=nccl");
    const Alarm alarm("MPI_Comm_dup");
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &collectives_), "MPI_Comm_dup");
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &messages_), "MPI_Comm_dup");
    worker_.start(work_of, this);
  }
  ~MpiComm() override {
    const Alarm alarm("MPI_Comm_free");
    MPI_Comm_free(&collectives_);
    MPI_Comm_free(&messages_);
  }
  double seconds() override { return seconds_now() - began_; }

 protected:
  std::unique_ptr<Work> begin(const Offer& offer) override;
  std::unique_ptr<Work> begin_send(const Tensor& x, int64_t to) override;
  std::unique_ptr<Work> begin_recv(const Tensor& x, int64_t from) override;

 private:
  template <class F>
  void each_other(const F& f) const {
    for (int64_t r = 0; r < size(); ++r)
      if (r != rank()) f(r);
  }
  Part part(int64_t n, int64_t r) const { return part_of(n, r, size()); }
  static void work_of(void* comm);
  [[noreturn]] void work();
  void go_on();
  void await(Requests& requests);
  template <class F>
  void wait(const std::string& what, const F& over);
  void finish(Operation& op);
  void compare_headers(Operation& op);
  void sum_own_part(Operation& op);
  void send_whole(Operation& op, CBuf x, int64_t n);
  void receive_wholes(Operation& op, Tensor y);
  void pass_on(Operation& op);

  double began_;
  Tensor sum_, received_;
  MPI_Comm collectives_, messages_;
  int64_t calls_ = 0;
  std::deque<std::shared_ptr<Operation>> begun_;
  std::map<int64_t, int64_t> sent_, asked_;  // messages to and from each rank
  std::list<Letter> letters_;
  Fiber main_, worker_{size_t(1) << 20};
  std::exception_ptr failure_;  // of the worker
};

void MpiComm::work_of(void* comm) { static_cast<MpiComm*>(comm)->work(); }

// On the fiber.
void MpiComm::work() {
  for (;; worker_.switch_to(main_))
    while (!begun_.empty() && !failure_) {
      try {
        finish(*begun_.front());
        begun_.pop_front();
      } catch (...) {
        failure_ = std::current_exception();
      }
    }
}

// The fiber's turn, until it has to wait.
void MpiComm::go_on() {
  if (!begun_.empty()) main_.switch_to(worker_);
  if (failure_) std::rethrow_exception(failure_);
}

// Within the fiber.
void MpiComm::await(Requests& requests) {
  while (!requests.over()) worker_.switch_to(main_);
}

template <class F>
void MpiComm::wait(const std::string& what, const F& over) {
  wait_until([&] { return over() || (go_on(), false); }, what);
}

std::unique_ptr<Work> MpiComm::begin(const Offer& o) {
  auto op = std::make_shared<Operation>(Operation{calls_++, o, Header::of(o), Requests(collectives_)});
  each_other(
      [&](int64_t r) { op->sending.send(op->mine.in(), Header::kNumel, r, tag_of(op->number, kHeader)); });
  if (o.what == Collective::AllReduce || o.what == Collective::ReduceScatter)
    each_other([&](int64_t r) {
      const Part p = part(o.numel(), r);
      for (int64_t at = 0; at < p.count; at += kPiece)
        op->sending.send(o.x.in().from(p.begin + at), std::min(kPiece, p.count - at), r,
                         tag_of(op->number, kParts));
    });
  if (o.what == Collective::AllGather) send_whole(*op, o.x.in(), o.x.numel());
  if (o.what == Collective::Barrier) op->sending.barrier();
  begun_.push_back(op);
  go_on();
  return std::make_unique<OnWait>([this, op] { wait(op->mine.text(), [&] { return op->done; }); });
}

void MpiComm::finish(Operation& op) {
  compare_headers(op);
  Tensor x = op.offer.x, y = op.offer.y;
  switch (op.offer.what) {
    case Collective::ReduceScatter: sum_own_part(op); break;
    case Collective::AllReduce: {
      sum_own_part(op);
      await(op.sending);  // before other parts of the sum take the place of what was sent
      const Part own = part(x.numel(), rank());
      send_whole(op, x.in().from(own.begin), own.count);
      receive_wholes(op, x);
      break;
    }
    case Collective::AllGather: {
      const Out own = y.set().from(part(y.numel(), rank()).begin);
      if (own.p != x.in().p) y.device().copy_in(own.p, x.in().p, x.bytes());
      receive_wholes(op, y);
      break;
    }
    case Collective::Broadcast: pass_on(op); break;
    case Collective::Barrier: break;
  }
  await(op.sending);
  op.offer = {};  // the tensors
  op.done = true;
}

void MpiComm::compare_headers(Operation& op) {
  std::vector<Header> theirs(static_cast<size_t>(size()), op.mine);
  Requests headers(collectives_);
  each_other([&](int64_t r) {
    headers.recv(theirs[size_t(r)].set(), Header::kNumel, r, tag_of(op.number, kHeader));
  });
  await(headers);
  each_other([&](int64_t r) { check_same(op.mine, theirs[size_t(r)], op.number + 1, r); });
}

void MpiComm::sum_own_part(Operation& op) {
  const Tensor& x = op.offer.x;
  Tensor y = op.offer.y;
  const Part own = part(x.numel(), rank());
  const int64_t target = op.offer.what == Collective::AllReduce ? own.begin : 0;
  Device& device = sum_.device();
  for (int64_t at = 0; at < own.count; at += kPiece) {
    const int64_t n = std::min(kPiece, own.count - at);
    for (int64_t r = 0; r < size(); ++r) {
      CBuf piece = x.in().from(own.begin + at);
      if (r != rank()) {
        Requests coming(collectives_);
        coming.recv({received_.set().p, x.dtype()}, n, r, tag_of(op.number, kParts));
        await(coming);
        piece = {received_.in().p, x.dtype()};
      }
      be(sum_).cast(device.ctx(), n, piece, sum_.out(r == 0 ? Write::Set : Write::Add));
    }
    be(sum_).cast(device.ctx(), n, sum_.in(), y.set().from(target + at));
  }
}

void MpiComm::send_whole(Operation& op, CBuf x, int64_t n) {
  each_other([&](int64_t r) { op.sending.send(x, n, r, tag_of(op.number, kWholes)); });
}

// The others' parts of y.
void MpiComm::receive_wholes(Operation& op, Tensor y) {
  Requests coming(collectives_);
  each_other([&](int64_t r) {
    const Part p = part(y.numel(), r);
    coming.recv(y.set().from(p.begin), p.count, r, tag_of(op.number, kWholes));
  });
  await(coming);
}

// From rank to rank, from the root on.
void MpiComm::pass_on(Operation& op) {
  Tensor x = op.offer.x;
  const int64_t right = (rank() + 1) % size(), left = (rank() + size() - 1) % size();
  if (rank() != op.offer.root) {
    Requests coming(collectives_);
    coming.recv(x.set(), x.numel(), left, tag_of(op.number, kWholes));
    await(coming);
  }
  if (right != op.offer.root) op.sending.send(x.in(), x.numel(), right, tag_of(op.number, kWholes));
}

std::unique_ptr<Work> MpiComm::begin_send(const Tensor& x, int64_t to) {
  std::erase_if(letters_, [](Letter& l) { return l.sending.over(); });
  const char* bytes = x.in().as<char>();
  Letter& l = letters_.emplace_back(
      Letter{{0, x.numel(), int64_t(x.dtype()), 0}, {bytes, bytes + x.bytes()}, Requests(messages_)});
  const int64_t number = sent_[to]++;
  l.sending.send(l.header.in(), Header::kNumel, to, tag_of(number, kHeader));
  l.sending.send({l.bytes.data(), DType::U8}, int64_t(l.bytes.size()), to, tag_of(number, kWholes));
  return std::make_unique<OnWait>(nullptr);
}

std::unique_ptr<Work> MpiComm::begin_recv(const Tensor& x, int64_t from) {
  return std::make_unique<OnWait>([this, to = x, from, number = asked_[from]++]() mutable {
    std::ostringstream what;
    what << "recv of " << to.numel() << " " << name_of(to.dtype()) << " from rank " << from;
    Header sent{};
    Requests coming(messages_);
    coming.recv(sent.set(), Header::kNumel, from, tag_of(number, kHeader));
    wait(what.str(), [&] { return coming.over(); });
    check(sent.numel == to.numel() && DType(sent.dtype) == to.dtype(), what.str(), ": what was sent are ",
          sent.numel, " ", name_of(DType(sent.dtype)));
    coming.recv(to.set(), to.numel(), from, tag_of(number, kWholes));
    wait(what.str(), [&] { return coming.over(); });
  });
}

}  // namespace

std::unique_ptr<Comm> mpi_comm() { return std::make_unique<MpiComm>(this_process()); }

}  // namespace gradus
