// Work with a GPU's stream: times, copies on a second stream, graphs. Only in builds with CUDA=1.
#pragma once
#include <cuda_runtime_api.h>

#include <vector>

#include "kernels/check.h"
#include "src/memory/source.h"

namespace gradus {

// A kernel's error is reported by the first call that waits for the kernel, whatever that call does.
inline void check_cuda(cudaError_t e, const char* what) {
  if (e != cudaSuccess) cudaGetLastError();  // or the next call that asks would report it, too
  check(e == cudaSuccess, "cuda: ", what, " failed: ", cudaGetErrorString(e),
        "; if a kernel printed a sentence before this, that is the reason");
}

// Events are times on the GPU's clock, and CUDA gives only their differences. So the first event is recorded
// while the GPU is idle; its time on the host's clock is known.
class CudaClock : public DeviceClock {
 public:
  explicit CudaClock(cudaStream_t stream) : stream_(stream) {}
  ~CudaClock() override {
    for (cudaEvent_t e : events_) cudaEventDestroy(e);
  }
  void note() override {
    if (noted_ == events_.size()) {
      cudaEvent_t event = nullptr;
      check_cuda(cudaEventCreate(&event), "creating an event");
      events_.push_back(event);
    }
    if (noted_ == 0) {
      check_cuda(cudaStreamSynchronize(stream_), "waiting for queued work");
      first_ = seconds_now();
    }
    check_cuda(cudaEventRecord(events_[noted_++], stream_), "recording an event");
  }
  std::vector<double> read() override {
    check_cuda(cudaStreamSynchronize(stream_), "waiting for queued work");
    std::vector<double> seconds;
    for (size_t i = 0; i < noted_; ++i) {
      float ms = 0;  // since the previous event; a float since the first one would be too coarse
      if (i > 0) check_cuda(cudaEventElapsedTime(&ms, events_[i - 1], events_[i]), "reading an event");
      seconds.push_back((i > 0 ? seconds.back() : first_) + 1e-3 * double(ms));
    }
    noted_ = 0;
    return seconds;
  }

 private:
  cudaStream_t stream_;
  std::vector<cudaEvent_t> events_;  // the first noted_ are recorded and not yet read
  size_t noted_ = 0;
  double first_ = 0;
};

class CudaCopyQueue : public CopyQueue {
 public:
  CudaCopyQueue(Source& source, cudaStream_t kernels) : CopyQueue(source), kernels_(kernels) {
    check_cuda(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking), "creating a stream");
    check_cuda(cudaEventCreateWithFlags(&kernels_by_now_, cudaEventDisableTiming), "creating an event");
  }
  ~CudaCopyQueue() override {
    cudaStreamSynchronize(copies_);
    cudaEventDestroy(kernels_by_now_);
    cudaStreamDestroy(copies_);
  }
  void copy_in(void* to, const void* from_host, int64_t bytes) override {
    check_cuda(cudaEventRecord(kernels_by_now_, kernels_), "recording an event");
    check_cuda(cudaStreamWaitEvent(copies_, kernels_by_now_, 0), "making a stream wait");
    check_cuda(cudaMemcpyAsync(to, from_host, size_t(bytes), cudaMemcpyHostToDevice, copies_),
               "a copy from the host to the GPU");
  }
  void wait() override { check_cuda(cudaStreamSynchronize(copies_), "waiting for queued work"); }

 private:
  cudaStream_t kernels_, copies_ = nullptr;
  cudaEvent_t kernels_by_now_ = nullptr;
};

class CudaGraph : public DeviceGraph {
 public:
  CudaGraph(cudaStream_t stream, const std::function<void()>& calls) : stream_(stream) {
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "beginning a graph");
    struct Graph {
      cudaGraph_t graph = nullptr;
      ~Graph() {
        if (graph) cudaGraphDestroy(graph);
      }
    } noted;
    try {
      calls();
    } catch (...) {
      cudaStreamEndCapture(stream, &noted.graph);
      cudaGetLastError();  // `calls` has thrown its own error
      throw;
    }
    check_cuda(cudaStreamEndCapture(stream, &noted.graph), "ending a graph");
    check_cuda(cudaGraphInstantiate(&graph_, noted.graph, 0), "instantiating a graph");
  }
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }
  void launch() override { check_cuda(cudaGraphLaunch(graph_, stream_), "launching a graph"); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace gradus
