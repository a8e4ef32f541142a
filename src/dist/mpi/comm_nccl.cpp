// Comm over NCCL: one GPU a rank; MPI tells the processes of each other. It adds in an order of its own, so
// its sums are not those of the others to the bit.
#include "src/dist/processes.h"

#ifndef GRADUS_NCCL
namespace gradus {
std::unique_ptr<Comm> nccl_comm(double) {
  fail(
      "--comm=nccl: this program was built without NCCL; `make CUDA=1 mpi-18 COMM=nccl ARGS=--device=cuda` "
      "builds and "
      "starts one that was");
}
}  // namespace gradus
#else
#include <cuda_runtime.h>
#include <mpi.h>
#include <nccl.h>
#include <sched.h>

#include <algorithm>
#include <array>

#include "src/core/timing.h"

namespace gradus {
namespace {

void check_nccl(ncclResult_t status, const char* call) {
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
  NcclComm(Process self, double timeout)
      : Comm(self.rank, self.count), timeout_(timeout), began_(seconds_now()), device_(current().device) {
    check(std::string_view(device_.name()) == "cuda", "--comm=nccl carries GPU memory, and the device is ",
          device_.name(), "; take --device=cuda");
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
    return queue([&] { collective(o); }, o.x, o.y);
  }
  std::unique_ptr<Work> begin_send(const Tensor& x, int64_t to) override {
    const auto copy = std::make_shared<Tensor>(empty_like(x, "message"));
    check_cuda(
        cudaMemcpyAsync(copy->set().p, x.in().p, size_t(x.bytes()), cudaMemcpyDeviceToDevice, compute()),
        "cudaMemcpyAsync");
    return queue(
        [&] {
          check_nccl(ncclSend(copy->in().p, size_t(x.bytes()), ncclUint8, int(to), comm_, stream_),
                     "ncclSend");
        },
        *copy, {});
  }
  std::unique_ptr<Work> begin_recv(const Tensor& x, int64_t from) override {
    Tensor to = x;
    return queue(
        [&] {
          check_nccl(ncclRecv(to.set().p, size_t(x.bytes()), ncclUint8, int(from), comm_, stream_),
                     "ncclRecv");
        },
        x, {});
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
  std::unique_ptr<Work> queue(const F& call, const Tensor& x, const Tensor& y) {
    const Event before;
    check_cuda(cudaEventRecord(before.event, compute()), "cudaEventRecord");
    check_cuda(cudaStreamWaitEvent(stream_, before.event), "cudaStreamWaitEvent");
    auto work = std::make_unique<Queued>(*this, x, y);
    call();
    check_cuda(cudaEventRecord(work->over.event, stream_), "cudaEventRecord");
    return work;
  }

  void collective(const Offer& o) {
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
        return check_nccl(ncclAllReduce(x, y.set().p, size_t(o.x.numel()), type, ncclSum, comm_, stream_),
                          "ncclAllReduce");
      case Collective::ReduceScatter:
        return check_nccl(ncclReduceScatter(x, y.set().p, size_t(y.numel()), type, ncclSum, comm_, stream_),
                          "ncclReduceScatter");
      case Collective::AllGather:
        return check_nccl(ncclAllGather(x, y.set().p, size_t(o.x.numel()) * unit, type, comm_, stream_),
                          "ncclAllGather");
      case Collective::Broadcast:
        return check_nccl(
            ncclBroadcast(x, y.set().p, size_t(y.numel()) * unit, type, int(o.root), comm_, stream_),
            "ncclBroadcast");
      case Collective::Barrier: device_.synchronize();
    }
  }

  // Through MPI, because NCCL would hang.
  void compare(const Offer& o) {
    ++calls_;
    const std::array<int64_t, 4> mine{int64_t(o.what), o.numel(), int64_t(o.dtype()), o.root};
    std::vector<std::array<int64_t, 4> > theirs(static_cast<size_t>(size()));
    MPI_Request request;
    MPI_Iallgather(mine.data(), 4, MPI_INT64_T, theirs.data(), 4, MPI_INT64_T, MPI_COMM_WORLD, &request);
    int over = 0;
    for (const double begin = seconds_now(); MPI_Test(&request, &over, MPI_STATUS_IGNORE), !over;
         sched_yield())
      check(seconds_now() - begin < timeout_, o.text(), ": no answer for ", timeout_,
            " s (--comm-timeout); is a rank hanging, or doing something else?");
    for (size_t r = 0; r < theirs.size(); ++r) {
      const auto& [what, numel, dtype, root] = theirs[r];
      check(theirs[r] == mine, "its collective number ", calls_, " is ", o.text(), ", that of rank ", r,
            " is ", Offer::text_of(Collective(what), numel, DType(dtype), root));
    }
  }

  double timeout_, began_;
  Device& device_;
  ncclComm_t comm_;
  cudaStream_t stream_;
  int64_t calls_ = 0;
};

}  // namespace

std::unique_ptr<Comm> nccl_comm(double timeout) {
  return std::make_unique<NcclComm>(this_process(), timeout);
}

}  // namespace gradus
#endif
