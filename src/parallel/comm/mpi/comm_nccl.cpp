// Comm over NCCL: one GPU per rank; MPI connects the processes. NCCL adds in a different order, so its sums
// are not bitwise equal to those of the other transports.
#include "src/parallel/comm/processes.h"

#ifndef GRADUS_NCCL
namespace gradus {
std::unique_ptr<Comm> nccl_comm() {
  fail(
      "--comm=nccl: this program was built without NCCL; "
      "`make CUDA=1 mpi-18 COMM=nccl ARGS=--device=cuda` builds and starts one that was");
}
}  // namespace gradus
#else
#include <cuda_runtime.h>
#include <nccl.h>

#include <algorithm>

#include "src/parallel/comm/mpi/requests.h"

namespace gradus {
namespace {

void check_nccl(ncclResult_t status, const std::string& call) {
  check(status == ncclSuccess, "NCCL: ", call, ": ", ncclGetErrorString(status));
}
void check_cuda(cudaError_t status, const char* call) {
  check(status == cudaSuccess, "CUDA: ", call, ": ", cudaGetErrorString(status));
}

struct Event {
  Event() {
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  ~Event() { cudaEventDestroy(event); }
  Event(const Event&) = delete;
  cudaEvent_t event;
};

// Kernels go to the device's stream, NCCL's calls to a second stream; events order them. The host waits only
// in barrier(), and while it compares the ranks' calls.
class NcclComm : public Comm {
 public:
  // `mpi` has the ranks `members`, in that order, and belongs to this Comm from now on.
  NcclComm(MPI_Comm mpi, int64_t self, std::vector<int64_t> members, const std::string& name, double began)
      : Comm(self, std::move(members), name), mpi_(mpi), began_(began), device_(current().device) {
    check(std::string_view(device_.name()) == "cuda", "--comm=nccl needs GPU memory, but the device is ",
          device_.name(), "; use --device=cuda");
    const Alarm alarm("ncclCommInitRank");
    ncclUniqueId id;
    if (rank() == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    check_mpi(MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, mpi_), "MPI_Bcast");
    check_nccl(ncclCommInitRank(&comm_, int(size()), id, int(rank())), "ncclCommInitRank");
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  ~NcclComm() override {
    const Alarm alarm("ncclCommDestroy");
    cudaStreamDestroy(stream_);
    ncclCommDestroy(comm_);
    if (mpi_ != MPI_COMM_WORLD) MPI_Comm_free(&mpi_);
  }
  double seconds() override {
    device_.synchronize();
    return seconds_now() - began_;
  }

 protected:
  std::unique_ptr<Work> begin(const Offer& o) override {
    compare(o);
    if (o.what == Collective::Barrier) device_.synchronize();
    return queue(
        o.text(), [&] { return collective(o); }, o.x, o.y);
  }
  void begin_together(const std::function<void()>& all) override {
    begins_together_ = true;
    check_nccl(ncclGroupStart(), "ncclGroupStart");
    try {
      all();
    } catch (...) {
      ncclGroupEnd();
      begins_together_ = false;
      together_.clear();
      throw;
    }
    check_nccl(ncclGroupEnd(), "ncclGroupEnd");  // now the calls reach the stream
    begins_together_ = false;
    record_all();
  }
  std::unique_ptr<Comm> begin_split(const std::string& name, int64_t color) override {
    const std::vector<Header> theirs = compare({.what = Collective::Split, .root = color, .name = name});
    return std::make_unique<NcclComm>(split_mpi(mpi_, color, rank()), members()[size_t(rank())],
                                      members_with(color, *this, theirs), name, began_);
  }
  std::unique_ptr<Work> begin_send(const Transfer& s) override {
    check_no_tag(s);
    const Tensor& x = s.x;
    const auto copy = std::make_shared<Tensor>(empty_like(x, "message"));
    check_cuda(
        cudaMemcpyAsync(copy->set().p, x.in().p, size_t(x.bytes()), cudaMemcpyDeviceToDevice, compute()),
        "cudaMemcpyAsync");
    return queue(
        "ncclSend",
        [&] { return ncclSend(copy->in().p, size_t(x.bytes()), ncclUint8, int(s.rank), comm_, stream_); },
        *copy, {});
  }
  std::unique_ptr<Work> begin_recv(const Transfer& r) override {
    check_no_tag(r);
    Tensor to = r.x;
    return queue(
        "ncclRecv",
        [&] { return ncclRecv(to.set().p, size_t(to.bytes()), ncclUint8, int(r.rank), comm_, stream_); }, to,
        {});
  }

 private:
  class Queued : public Work {
   public:
    Queued(cudaStream_t compute, Tensor x, Tensor y)
        : compute_(compute), x_(std::move(x)), y_(std::move(y)) {}
    ~Queued() override {
      cudaStreamWaitEvent(compute_, over.event);
    }  // before the memory of its tensors is reused
    void wait() override { check_cuda(cudaStreamWaitEvent(compute_, over.event), "cudaStreamWaitEvent"); }
    Event over;

   private:
    cudaStream_t compute_;
    Tensor x_, y_;
  };

  cudaStream_t compute() { return static_cast<cudaStream_t>(device_.allocator().source().stream()); }
  // The call runs after all that is in the device's stream so far.
  template <class F>
  std::unique_ptr<Work> queue(const std::string& what, const F& call, const Tensor& x, const Tensor& y) {
    const Event before;
    check_cuda(cudaEventRecord(before.event, compute()), "cudaEventRecord");
    check_cuda(cudaStreamWaitEvent(stream_, before.event), "cudaStreamWaitEvent");
    auto work = std::make_unique<Queued>(compute(), x, y);
    check_nccl(call(), what);
    together_.push_back(work.get());
    if (!begins_together_) record_all();
    return work;
  }
  // Records the end of all calls since the last time.
  void record_all() {
    for (Queued* const work : std::exchange(together_, {}))
      check_cuda(cudaEventRecord(work->over.event, stream_), "cudaEventRecord");
  }

  ncclResult_t collective(const Offer& o) {
    const bool largest = o.what == Collective::AllReduceMax;
    const bool sums = o.what == Collective::AllReduce || o.what == Collective::ReduceScatter || largest;
    const ncclDataType_t type = !sums                     ? ncclUint8
                                : o.dtype() == DType::F32 ? ncclFloat32
                                : o.dtype() == DType::F16 ? ncclFloat16
                                                          : ncclBfloat16;
    Tensor y = o.y;
    const void* const x = o.x.defined() ? o.x.in().p : nullptr;
    const size_t unit = sums ? 1 : size_t(size_of(o.dtype()));
    switch (o.what) {
      case Collective::AllReduce:
      case Collective::AllReduceMax:
        return ncclAllReduce(x, y.set().p, size_t(o.x.numel()), type, largest ? ncclMax : ncclSum, comm_,
                             stream_);
      case Collective::ReduceScatter:
        return ncclReduceScatter(x, y.set().p, size_t(y.numel()), type, ncclSum, comm_, stream_);
      case Collective::AllGather:
        return ncclAllGather(x, y.set().p, size_t(o.x.numel()) * unit, type, comm_, stream_);
      case Collective::Broadcast:
        return ncclBroadcast(x, y.set().p, size_t(y.numel()) * unit, type, int(o.root), comm_, stream_);
      case Collective::Barrier:
      case Collective::Split: break;
    }
    return ncclSuccess;
  }

  // Compares the ranks' calls through MPI, because NCCL would hang if they differed.
  std::vector<Header> compare(const Offer& o) {
    ++calls_;
    const Header mine = Header::of(o);
    std::vector<Header> theirs(static_cast<size_t>(size()), mine);
    MPI_Request request;
    MPI_Iallgather(&mine, Header::kNumel, MPI_INT64_T, theirs.data(), Header::kNumel, MPI_INT64_T, mpi_,
                   &request);
    int over = 0;
    wait_until([&] { return MPI_Test(&request, &over, MPI_STATUS_IGNORE), over; }, mine.text() + where());
    check_same(*this, o.text(), theirs, calls_);
    return theirs;
  }
  // NCCL has no tags: messages between two ranks, and the parts of an all_to_all, arrive in the order in
  // which they are sent.
  static void check_no_tag(const Transfer& t) {
    check(t.tag <= 0, "--comm=nccl: a message with tag ", t.tag, "; NCCL has no tags, so use tag 0");
  }

  MPI_Comm mpi_;
  double began_;
  Device& device_;
  ncclComm_t comm_;
  cudaStream_t stream_;
  int64_t calls_ = 0;
  bool begins_together_ = false;
  std::vector<Queued*> together_;  // begun; their ends are not recorded yet
};

}  // namespace

std::unique_ptr<Comm> nccl_comm() {
  const Process self = this_process();
  return std::make_unique<NcclComm>(MPI_COMM_WORLD, self.rank, first_ranks(self.count), "", seconds_now());
}

}  // namespace gradus
#endif
