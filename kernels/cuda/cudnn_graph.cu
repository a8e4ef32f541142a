#include "kernels/cuda/cudnn_graph.h"

#include <cstring>

namespace gradus::GRADUS_GPU {

namespace {

constexpr cudnnDataType_t kMath = CUDNN_DATA_FLOAT;  // what sums and functions are computed in

// Heuristics propose nothing for a graph that they do not know, and nothing where they lack a library for
// what they know; both is success, and only the text of the last error differs.
void check_nothing_is_missing() {
  char text[4096] = "";
  cudnnGetLastErrorString(text, sizeof text);
  for (const cudnnStatus_t status : kMissingLibrary) {
    const char* const found = std::strstr(text, cudnnGetErrorString(status));
    if (found) fail("cuDNN could not find a plan: ", std::string(found, std::strcspn(found, "\n")));
  }
}

// The configurations that cuDNN's heuristics propose, the most promising first.
std::vector<Descriptor> proposals(cudnnBackendDescriptor_t graph, const Descriptor& device) {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A)
      .set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device.get());
  if (!cudnn_supports(cudnnBackendFinalize(heuristics.get()), "ask its heuristics")) return {};
  int64_t count =
      heuristics.read<void>(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, nullptr, 0);
  std::vector<Descriptor> configs;
  std::vector<cudnnBackendDescriptor_t> pointers;
  for (int64_t i = 0; i < count; ++i) {
    configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    pointers.push_back(configs.back().get());
  }
  count =
      heuristics.read(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, pointers.data(), count);
  configs.erase(configs.begin() + count, configs.end());
  if (configs.empty()) check_nothing_is_missing();
  return configs;
}

}  // namespace

CudnnGraph::Tensor CudnnGraph::tensor(int64_t id, cudnnDataType_t t, Four sizes, Four strides,
                                      bool is_virtual, bool by_value) {
  Descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id)
      .set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, t)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, sizes.data(), 4)
      .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides.data(), 4)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, int64_t(16))
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual)
      .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value);
  return keep(std::move(d), "describe a tensor");
}

CudnnGraph::Tensor CudnnGraph::matmul(Tensor a, Tensor b, Tensor c) {
  Descriptor how(CUDNN_BACKEND_MATMUL_DESCRIPTOR), d(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, kMath);
  d.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, keep(std::move(how), "describe a matrix product"))
      .set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a)
      .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b)
      .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
  return operation(std::move(d), c, "add a matrix product to a graph");
}

CudnnGraph::Tensor CudnnGraph::pointwise_as(Descriptor mode, cudnnDataType_t math, Tensor x, Tensor b,
                                            Tensor t, Tensor y) {
  mode.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, math);
  Descriptor d(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(mode), "describe a function"))
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  if (b) d.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
  if (t) d.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
  return operation(std::move(d), y, "add a function to a graph");
}

CudnnGraph::Tensor CudnnGraph::pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor t, Tensor y) {
  Descriptor how(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  return pointwise_as(std::move(how), kMath, x, b, t, y);
}

CudnnGraph::Tensor CudnnGraph::compare(cudnnPointwiseMode_t mode, Tensor a, Tensor b, Tensor y) {
  Descriptor how(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  return pointwise_as(std::move(how), CUDNN_DATA_BOOLEAN, a, b, nullptr, y);
}

CudnnGraph::Tensor CudnnGraph::index(int64_t dimension, Tensor x, Tensor y) {
  Descriptor how(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_GEN_INDEX)
      .set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, dimension);
  return pointwise_as(std::move(how), CUDNN_DATA_INT32, x, nullptr, nullptr, y);
}

CudnnGraph::Tensor CudnnGraph::reduce(cudnnReduceTensorOp_t op, Tensor x, Tensor y) {
  Descriptor how(CUDNN_BACKEND_REDUCTION_DESCRIPTOR), d(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, op)
      .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, kMath);
  d.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, keep(std::move(how), "describe a reduction"))
      .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x)
      .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
  return operation(std::move(d), y, "add a reduction to a graph");
}

CudnnGraph::Tensor CudnnGraph::reshape(Tensor x, Tensor y) {
  Descriptor d(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x).set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
  return operation(std::move(d), y, "add a reshape to a graph");
}

std::optional<Descriptor> CudnnGraph::plan(const Descriptor& device, int64_t most_workspace) {
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations_.data(),
            int64_t(operations_.size()));
  if (!cudnn_supports(cudnnBackendFinalize(graph.get()), "make a graph of operations")) return {};
  const auto fits = [most_workspace](const Descriptor& d, cudnnBackendAttributeName_t size) {
    int64_t bytes = 0;
    d.read(size, CUDNN_TYPE_INT64, &bytes, 1);
    return bytes <= most_workspace;
  };
  for (const Descriptor& config : proposals(graph.get(), device)) {
    // Asked before the plan is made, which compiles kernels and takes a good part of a second.
    if (!fits(config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE)) continue;
    Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config.get())
        .set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device.get());
    if (!cudnn_supports(cudnnBackendFinalize(plan.get()), "make a plan")) continue;
    if (fits(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)) return plan;
  }
  return {};
}

}  // namespace gradus::GRADUS_GPU
