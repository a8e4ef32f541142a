// A graph of operations on tensors of four dimensions (batch, head, row, column), built with the C interface
// of cuDNN and made into a plan: one or a few fused kernels that cuDNN has for the whole graph.
#pragma once
#include <cudnn.h>

#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

[[noreturn]] inline void cudnn_fail(cudnnStatus_t status, const char* what) {
  char reason[1024] = "";
  cudnnGetLastErrorString(reason, sizeof reason);
  fail("cuDNN could not ", what, ": ", cudnnGetErrorString(status), ", ", reason,
       " (CUDNN_LOGLEVEL_DBG=3 CUDNN_LOGDEST_DBG=stderr in the environment shows each call)");
}
inline void cudnn_check(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS) cudnn_fail(status, what);
}
// What cuDNN says under the heading "not supported" where a library is missing or too old.
constexpr cudnnStatus_t kMissingLibrary[] = {CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER,
                                             CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART,
                                             CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
                                             CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE};
// False where cuDNN knows what is asked, and has nothing for it. Anything else that went wrong is an error.
inline bool cudnn_supports(cudnnStatus_t status, const char* what) {
  for (const cudnnStatus_t missing : kMissingLibrary)
    if (status == missing) cudnn_fail(status, what);
  if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED) return false;
  cudnn_check(status, what);
  return true;
}

// All of this interface is one kind of object: a descriptor has attributes, is finalized, and then is an
// attribute of others.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t d = nullptr;
    cudnn_check(cudnnBackendCreateDescriptor(type, &d), "create a descriptor");
    d_.reset(d);
  }
  cudnnBackendDescriptor_t get() const { return d_.get(); }

  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T* values,
                  int64_t count) {
    cudnn_check(cudnnBackendSetAttribute(get(), name, type, count, values), "set an attribute");
    return *this;
  }
  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    return set(name, type, &value, 1);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t other) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, &other, 1);
  }
  // Reads up to `most` values, says how many there are.
  template <class T>
  int64_t read(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, T* values,
               int64_t most) const {
    int64_t count = 0;
    cudnn_check(cudnnBackendGetAttribute(get(), name, type, most, &count, values), "read an attribute");
    return count;
  }
  void finalize(const char* what) { cudnn_check(cudnnBackendFinalize(get()), what); }

 private:
  struct Destroy {
    void operator()(void* d) const { cudnnBackendDestroyDescriptor(d); }
  };
  std::unique_ptr<void, Destroy> d_;
};

class CudnnGraph {
 public:
  using Tensor = cudnnBackendDescriptor_t;
  using Four = std::array<int64_t, 4>;

  // A tensor in memory; the caller of the plan gives its address under this id.
  Tensor memory(int64_t id, cudnnDataType_t t, Four sizes, Four strides) {
    return tensor(id, t, sizes, strides, false, false);
  }
  // One fp32 number; the caller of the plan gives its address, in the host's memory.
  Tensor number(int64_t id) { return tensor(id, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true); }
  // A tensor that exists only between operations, and never in memory.
  Tensor between(cudnnDataType_t t, Four sizes, Four strides) {
    return tensor(next_id_++, t, sizes, strides, true, false);
  }
  Tensor between(cudnnDataType_t t, Four n) {
    return between(t, n, {n[1] * n[2] * n[3], n[2] * n[3], n[3], 1});
  }

  // c = a b
  Tensor matmul(Tensor a, Tensor b, Tensor c);
  // y = mode(x), mode(x, b) or mode(x, b, t), element by element. Sizes of 1 are repeated.
  Tensor pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor t, Tensor y);
  Tensor pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor y) {
    return pointwise(mode, x, b, nullptr, y);
  }
  Tensor pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor y) {
    return pointwise(mode, x, nullptr, nullptr, y);
  }
  // y = mode(a, b), of booleans
  Tensor compare(cudnnPointwiseMode_t mode, Tensor a, Tensor b, Tensor y);
  // y = the index of each element of x along a dimension, of integers
  Tensor index(int64_t dimension, Tensor x, Tensor y);
  // y = the sum, maximum, ... of x over the dimensions where y has size 1
  Tensor reduce(cudnnReduceTensorOp_t op, Tensor x, Tensor y);
  // y = x, with other sizes and strides
  Tensor reshape(Tensor x, Tensor y);

  // The first plan in the order of cuDNN's heuristics that needs at most so many bytes of workspace. `device`
  // is a finalized CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR.
  std::optional<Descriptor> plan(const Descriptor& device, int64_t most_workspace);

 private:
  Tensor tensor(int64_t id, cudnnDataType_t t, Four sizes, Four strides, bool is_virtual, bool by_value);
  Tensor keep(Descriptor d, const char* what) {
    d.finalize(what);
    kept_.push_back(std::move(d));
    return kept_.back().get();
  }
  Tensor operation(Descriptor d, Tensor output, const char* what) {
    operations_.push_back(keep(std::move(d), what));
    return output;
  }
  Tensor pointwise_as(Descriptor mode, cudnnDataType_t math, Tensor x, Tensor b, Tensor t, Tensor y);

  std::vector<Descriptor> kept_;  // everything that the graph is made of
  std::vector<Tensor> operations_;
  int64_t next_id_ = 1000;  // above those of the caller
};

}  // namespace gradus::GRADUS_GPU
