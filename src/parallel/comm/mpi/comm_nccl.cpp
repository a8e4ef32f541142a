// Comm over NCCL: one GPU a rank; MPI tells the processes of each other. It adds in an order of its own, so
// its sums are not those of the others to the bit.
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

// Kernels go to the device's stream, NCCL's to one beside it; events keep them in order. The host waits only
// in barrier(), and to compare what the ranks do.
class NcclComm : public Comm {
 public:
  explicit NcclComm(Process self)
      : Comm(self.rank, self.count), began_(seconds_now()), device_(current().device) {
    check(std::string_view(device_.name()) == "cuda", "--comm=nccl carries GPU memory, and the device is ",
          device_.name(), "; take --device=cuda");
    const Alarm alarm("ncclCommInitRank");
    ncclUniqueId id;
    if (rank() == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    check_nccl(ncclCommInitRank(&comm_, int(size()), id, int(rank())), "ncclCommInitRank");
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  ~NcclComm() override {
    cudaStreamDestroy(stream_);
    ncclCommDestroy(comm_);
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
  std::unique_ptr<Work> begin_send(const Tensor& x, int64_t to) override {
    const auto copy = std::make_shared<Tensor>(empty_like(x, "message"));
    check_cuda(
        cudaMemcpyAsync(copy->set().p, x.in().p, size_t(x.bytes()), cudaMemcpyDeviceToDevice, compute()),
        "cudaMemcpyAsync");
    return queue(
        "ncclSend",
        [&] { return ncclSend(copy->in().p, size_t(x.bytes()), ncclUint8, int(to), comm_, stream_); }, *copy,
        {});
  }
  std::unique_ptr<Work> begin_recv(const Tensor& x, int64_t from) override {
    Tensor to = x;
    return queue(
        "ncclRecv",
        [&] { return ncclRecv(to.set().p, size_t(x.bytes()), ncclUint8, int(from), comm_, stream_); }, x, {});
  }

 private:
  class Queued : public Work {
   public:
    Queued(NcclComm& comm, Tensor x, Tensor y) : comm_(comm), x_(std::move(x)), y_(std::move(y)) {}
    void wait() override {
      check_cuda(cudaStreamWaitEvent(comm_.compute(), over.event), "cudaStreamWaitEvent");
    }
    Event over;

   private:
    NcclComm& comm_;
    Tensor x_, y_;
  };

  cudaStream_t compute() { return static_cast<cudaStream_t>(device_.allocator().source().stream()); }
  // After what the device has been asked for so far.
  template <class F>
  std::unique_ptr<Work> queue(const std::string& what, const F& call, const Tensor& x, const Tensor& y) {
    const Event before;
    check_cuda(cudaEventRecord(before.event, compute()), "cudaEventRecord");
    check_cuda(cudaStreamWaitEvent(stream_, before.event), "cudaStreamWaitEvent");
    auto work = std::make_unique<Queued>(*this, x, y);
    check_nccl(call(), what);
    check_cuda(cudaEventRecord(work->over.event, stream_), "cudaEventRecord");
    return work;
  }

  ncclResult_t collective(const Offer& o) {
    const bool sums = o.what == Collective::AllReduce || o.what == Collective::ReduceScatter;
    const ncclDataType_t type = !sums                     ? ncclUint8
                                : o.dtype() == DType::F32 ? ncclFloat32
                                : o.dtype() == DType::F16 ? ncclFloat16
                                                          : ncclBfloat16;
    Tensor y = o.y;
    const void* const x = o.x.defined() ? o.x.in().p : nullptr;
    const size_t unit = sums ? 1 : size_t(size_of(o.dtype()));
    switch (o.what) {
      case Collective::AllReduce:
        return ncclAllReduce(x, y.set().p, size_t(o.x.numel()), type, ncclSum, comm_, stream_);
      case Collective::ReduceScatter:
        return ncclReduceScatter(x, y.set().p, size_t(y.numel()), type, ncclSum, comm_, stream_);
      case Collective::AllGather:
        return ncclAllGather(x, y.set().p, size_t(o.x.numel()) * unit, type, comm_, stream_);
      case Collective::Broadcast:
        return ncclBroadcast(x, y.set().p, size_t(y.numel()) * unit, type, int(o.root), comm_, stream_);
      case Collective::Barrier: break;
    }
    return ncclSuccess;
  }

  // Through MPI, because NCCL would hang.
  void compare(const Offer& o) {
    ++calls_;
    const Header mine = Header::of(o);
    std::vector<Header> theirs(static_cast<size_t>(size()), mine);
    MPI_Request request;
    MPI_Iallgather(&mine, Header::kNumel, MPI_INT64_T, theirs.data(), Header::kNumel, MPI_INT64_T,
                   MPI_COMM_WORLD, &request);
    int over = 0;
    wait_until([&] { return MPI_Test(&request, &over, MPI_STATUS_IGNORE), over; }, mine.text());
    for (int64_t r = 0; r < size(); ++r) check_same(mine, theirs[size_t(r)], calls_, r);
  }

  double began_;
  Device& device_;
  ncclComm_t comm_;
  cudaStream_t stream_;
  int64_t calls_ = 0;
};

}  // namespace

std::unique_ptr<Comm> nccl_comm() { return std::make_unique<NcclComm>(this_process()); }

}  // namespace gradus
#endif
