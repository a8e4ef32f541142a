// Comm over MPI: real processes, with any MPI. Collectives consist of messages, so that sums are added in
// rank order. A rank sends its data when a collective begins; a fiber per group does the rest, one collective
// after the other. All these fibers go on whenever the rank waits for anything or begins a collective.
#include <deque>

#include "kernels/fiber.h"
#include "src/parallel/comm/mpi/mail.h"
#include "src/parallel/comm/processes.h"
#include "src/tensor/call.h"

namespace gradus {
namespace {

constexpr int64_t kCalls = 8000;  // tags distinguish this many calls, and their stages
enum Stage : int { kHeader, kParts, kWholes };
int tag_of(int64_t call, Stage stage) { return int(call % kCalls) * 4 + stage; }

struct Operation {  // a collective that has begun
  int64_t number;
  Offer offer;
  Header mine;
  Requests sending;
  std::vector<Header> all = {};  // by rank, including this one's
  bool done = false;
};

class MpiComm;

// Shared by this process's groups: a collective of one must go on while the rank waits in a different one.
struct Progress {
  std::vector<MpiComm*> comms;
  std::string problem;  // error of a Comm that has ended too early
  std::list<Letter> sending;
  Fiber main;
};

class MpiComm : public Comm {
 public:
  // `mpi` has the ranks `members`, in that order.
  MpiComm(MPI_Comm mpi, int64_t self, std::vector<int64_t> members, const std::string& name, double began,
          std::shared_ptr<Progress> progress)
      : Comm(self, std::move(members), name),
        began_(began),
        progress_(std::move(progress)),
        mail_(mpi, progress_->sending),
        sum_(current().device, {kPiece}, DType::F32, Kind::Comm, "sum of parts"),
        received_(current().device, {kPiece}, DType::F32, Kind::Comm, "received part") {
    check(current().device.allocator().source().on_host(), "--comm=mpi needs host memory, but the device is ",
          current().device.name(), "; use cpu or emu, or --comm=nccl");
    const Alarm alarm("MPI_Comm_dup");
    check_mpi(MPI_Comm_dup(mpi, &collectives_), "MPI_Comm_dup");
    worker_.start(work_of, this);
    progress_->comms.push_back(this);
  }
  ~MpiComm() override {
    std::erase(progress_->comms, this);
    if (!begun_.empty())
      progress_->problem = "a Comm" + where() + " has ended while " + begun_.front()->mine.text() +
                           " was under way; wait for it before";
    const Alarm alarm("MPI_Comm_free");
    MPI_Comm_free(&collectives_);
  }
  double seconds() override { return seconds_now() - began_; }

 protected:
  std::unique_ptr<Work> begin(const Offer& offer) override;
  std::unique_ptr<Work> begin_send(const Transfer& s) override;
  std::unique_ptr<Work> begin_recv(const Transfer& r) override;
  std::unique_ptr<Comm> begin_split(const std::string& name, int64_t color) override;

 private:
  template <class F>
  void each_other(const F& f) const {
    for (int64_t r = 0; r < size(); ++r)
      if (r != rank()) f(r);
  }
  Part part(int64_t n, int64_t r) const { return part_of(n, r, size()); }
  static void work_of(void* comm);
  [[noreturn]] void work();
  std::shared_ptr<Operation> start(const Offer& offer);
  void go_on();
  void await(Requests& requests);
  template <class F>
  void wait(const std::string& what, const F& over);
  void finish(Operation& op);
  void compare_headers(Operation& op);
  void sum_own_part(Operation& op);
  void send_whole(Operation& op, CBuf x, int64_t n);
  void receive_wholes(Operation& op, Tensor& y);
  void pass_on(Operation& op);

  double began_;
  std::shared_ptr<Progress> progress_;
  Mail mail_;
  Tensor sum_, received_;
  MPI_Comm collectives_;
  int64_t calls_ = 0;
  std::deque<std::shared_ptr<Operation>> begun_;
  Fiber worker_{size_t(1) << 20};
  std::exception_ptr failure_;  // of the worker
};

void MpiComm::work_of(void* comm) { static_cast<MpiComm*>(comm)->work(); }

// Runs on the fiber.
void MpiComm::work() {
  for (;; worker_.switch_to(progress_->main))
    while (!begun_.empty() && !failure_) {
      try {
        finish(*begun_.front());
        begun_.pop_front();
      } catch (...) {
        failure_ = std::current_exception();
      }
    }
}

// Runs each group's fiber until it has to wait.
void MpiComm::go_on() {
  check(progress_->problem.empty(), progress_->problem);
  for (MpiComm* const comm : progress_->comms) {
    if (!comm->begun_.empty()) progress_->main.switch_to(comm->worker_);
    if (comm->failure_) std::rethrow_exception(comm->failure_);
  }
}

// Called on the fiber.
void MpiComm::await(Requests& requests) {
  while (!requests.over()) worker_.switch_to(progress_->main);
}

template <class F>
void MpiComm::wait(const std::string& what, const F& over) {
  wait_until([&] { return over() || (go_on(), false); }, what);
}

std::shared_ptr<Operation> MpiComm::start(const Offer& o) {
  auto op = std::make_shared<Operation>(Operation{calls_++, o, Header::of(o), Requests(collectives_)});
  each_other(
      [&](int64_t r) { op->sending.send(op->mine.in(), Header::kNumel, r, tag_of(op->number, kHeader)); });
  if (is_all_reduce(o.what) || o.what == Collective::ReduceScatter)
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
  return op;
}

std::unique_ptr<Work> MpiComm::begin(const Offer& o) {
  return std::make_unique<OnWait>(
      [this, op = start(o)] { wait(op->mine.text() + where(), [&] { return op->done; }); });
}

// MPI_Comm_split waits for all ranks, so it is called when all are known to split.
std::unique_ptr<Comm> MpiComm::begin_split(const std::string& name, int64_t color) {
  const auto op = start({.what = Collective::Split, .root = color, .name = name});
  wait(op->mine.text() + where(), [&] { return op->done; });
  MPI_Comm part = split_mpi(collectives_, color, rank());
  auto comm = std::make_unique<MpiComm>(part, members()[size_t(rank())], members_with(color, *this, op->all),
                                        name, began_, progress_);
  MPI_Comm_free(&part);
  return comm;
}

// Here and below, tensors are references into the offer: if the Comm ends while the fiber waits, nothing
// unwinds the fiber's stack, and a Tensor there would keep its memory.
void MpiComm::finish(Operation& op) {
  compare_headers(op);
  Tensor &x = op.offer.x, &y = op.offer.y;
  switch (op.offer.what) {
    case Collective::ReduceScatter: sum_own_part(op); break;
    case Collective::AllReduce:
    case Collective::AllReduceMax: {
      sum_own_part(op);
      await(op.sending);  // before parts of the sum overwrite data that is being sent
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
    case Collective::Barrier:
    case Collective::Split: break;
  }
  await(op.sending);
  op.offer = {};  // releases the tensors
  op.done = true;
}

void MpiComm::compare_headers(Operation& op) {
  op.all.assign(size_t(size()), op.mine);
  Requests headers(collectives_);
  each_other([&](int64_t r) {
    headers.recv(op.all[size_t(r)].set(), Header::kNumel, r, tag_of(op.number, kHeader));
  });
  await(headers);
  check_same(*this, op.offer.text(), op.all, op.number + 1);
}

void MpiComm::sum_own_part(Operation& op) {
  const Tensor& x = op.offer.x;
  Tensor& y = op.offer.y;
  const Part own = part(x.numel(), rank());
  const int64_t target = is_all_reduce(op.offer.what) ? own.begin : 0;
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
      fold(sum_, piece, n, op.offer.what, r == 0);
    }
    be(sum_).cast(device.ctx(), n, sum_.in(), y.set().from(target + at));
  }
}

void MpiComm::send_whole(Operation& op, CBuf x, int64_t n) {
  each_other([&](int64_t r) { op.sending.send(x, n, r, tag_of(op.number, kWholes)); });
}

// Receives the other ranks' parts of y.
void MpiComm::receive_wholes(Operation& op, Tensor& y) {
  Requests coming(collectives_);
  each_other([&](int64_t r) {
    const Part p = part(y.numel(), r);
    coming.recv(y.set().from(p.begin), p.count, r, tag_of(op.number, kWholes));
  });
  await(coming);
}

// Passes x on from rank to rank, beginning at the root.
void MpiComm::pass_on(Operation& op) {
  Tensor& x = op.offer.x;
  const int64_t right = (rank() + 1) % size(), left = (rank() + size() - 1) % size();
  if (rank() != op.offer.root) {
    Requests coming(collectives_);
    coming.recv(x.set(), x.numel(), left, tag_of(op.number, kWholes));
    await(coming);
  }
  if (right != op.offer.root) op.sending.send(x.in(), x.numel(), right, tag_of(op.number, kWholes));
}

std::unique_ptr<Work> MpiComm::begin_send(const Transfer& s) {
  mail_.send(s);
  return std::make_unique<OnWait>(nullptr);
}

std::unique_ptr<Work> MpiComm::begin_recv(const Transfer& r) {
  return std::make_unique<OnWait>([this, r, number = mail_.ask(r)] {
    const std::string what = recv_text(r);
    mail_.receive(r, number, what, [&](const auto& over) { wait(what, over); });
  });
}

}  // namespace

std::unique_ptr<Comm> mpi_comm() {
  const Process self = this_process();
  return std::make_unique<MpiComm>(MPI_COMM_WORLD, self.rank, first_ranks(self.count), "", seconds_now(),
                                   std::make_shared<Progress>());
}

}  // namespace gradus
