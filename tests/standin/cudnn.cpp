// cuDNN's backend interface: descriptors, plans and their execution. A graph is interpreted (graph.cpp).
#include "tests/standin/cudnn.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <string>
#include <utility>

#include "tests/standin/descriptor.h"
#include "tests/standin/standin.h"

namespace gradus::standin {

struct cudnnContext {
  int gpu;
};

static thread_local std::string last_error;
static cudnnStatus_t refuse(cudnnStatus_t status, const char* why) {
  last_error = why;
  return status;
}

size_t cudnnGetVersion() { return machine().cudnn_version; }
const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER: return "CUDNN_..._INCOMPATIBLE_CUDA_DRIVER";
    case CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART: return "CUDNN_..._INCOMPATIBLE_CUDART";
    case CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING: return "CUDNN_..._PREREQUISITE_MISSING";
    case CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE: return "CUDNN_..._SUBLIBRARY_UNAVAILABLE";
    case CUDNN_STATUS_NOT_SUPPORTED_SHAPE: return "CUDNN_..._SHAPE";
    default: return "CUDNN_...";
  }
}
void cudnnGetLastErrorString(char* text, size_t most) {  // and forgets it
  std::strncpy(text, std::exchange(last_error, "").c_str(), most - 1);
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = new cudnnContext{machine().gpu};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t) { return CUDNN_STATUS_SUCCESS; }

// What the caller holds: a pointer to the entry of this list.
static std::mutex mutex;
static std::map<void*, std::shared_ptr<Descriptor>>& descriptors() {
  static auto* const all = new std::map<void*, std::shared_ptr<Descriptor>>;
  return *all;
}
static std::shared_ptr<Descriptor> find(cudnnBackendDescriptor_t d) {
  const std::lock_guard lock(mutex);
  return descriptors().at(d);
}
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* d) {
  const std::lock_guard lock(mutex);
  auto made = std::make_shared<Descriptor>(Descriptor{.type = type});
  *d = made.get();
  descriptors()[*d] = made;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d) {
  const std::lock_guard lock(mutex);
  descriptors().erase(d);
  return CUDNN_STATUS_SUCCESS;
}

// Whose each attribute is, and of which type (cuDNN's documentation, "cudnnBackendAttributeName_t").
struct Rule {
  cudnnBackendDescriptorType_t of;
  cudnnBackendAttributeType_t type;
};
static Rule rule_of(cudnnBackendAttributeName_t name) {
  const auto between = [name](auto first, auto last) { return first <= name && name <= last; };
  switch (name) {
    case CUDNN_ATTR_DEVICEPROP_DEVICE_ID: return {CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, CUDNN_TYPE_INT32};
    case CUDNN_ATTR_TENSOR_DATA_TYPE: return {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_TYPE_DATA_TYPE};
    case CUDNN_ATTR_TENSOR_IS_VIRTUAL:
    case CUDNN_ATTR_TENSOR_IS_BY_VALUE: return {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_TYPE_BOOLEAN};
    case CUDNN_ATTR_MATMUL_COMP_TYPE: return {CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_TYPE_DATA_TYPE};
    case CUDNN_ATTR_POINTWISE_MODE: return {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_TYPE_POINTWISE_MODE};
    case CUDNN_ATTR_POINTWISE_MATH_PREC: return {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_TYPE_DATA_TYPE};
    case CUDNN_ATTR_POINTWISE_AXIS: return {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_TYPE_INT64};
    case CUDNN_ATTR_REDUCTION_OPERATOR:
      return {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE};
    case CUDNN_ATTR_REDUCTION_COMP_TYPE: return {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_TYPE_DATA_TYPE};
    case CUDNN_ATTR_OPERATIONGRAPH_OPS:
      return {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR};
    case CUDNN_ATTR_ENGINEHEUR_MODE: return {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_TYPE_HEUR_MODE};
    case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE: return {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_TYPE_INT64};
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      return {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_TYPE_INT64};
    case CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS: return {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_TYPE_INT64};
    case CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS:
    case CUDNN_ATTR_VARIANT_PACK_WORKSPACE:
      return {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_TYPE_VOID_PTR};
    default: break;
  }
  if (between(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT))
    return {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_TYPE_INT64};
  if (between(CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_ATTR_OPERATION_MATMUL_CDESC))
    return {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR};
  if (between(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_YDESC))
    return {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR};
  if (between(CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_ATTR_OPERATION_REDUCTION_YDESC))
    return {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR};
  if (between(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_ATTR_OPERATION_RESHAPE_YDESC))
    return {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR};
  return {between(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_ATTR_ENGINEHEUR_RESULTS)
              ? CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR
              : CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
          CUDNN_TYPE_BACKEND_DESCRIPTOR};
}
static size_t bytes_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
    case CUDNN_TYPE_INT64: return sizeof(int64_t);
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return sizeof(void*);
    default: return sizeof(int32_t);  // and enumerations
  }
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  Descriptor& d = *find(to);
  const Rule rule = rule_of(name);
  if (d.finalized) return refuse(CUDNN_STATUS_BAD_PARAM, "a finalized descriptor does not change");
  if (d.type != rule.of) return refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "it has no such attribute");
  if (type != rule.type)
    return refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "the attribute is of another type");
  Attribute a{.type = type, .bytes = std::vector<char>(size_t(count) * bytes_of(type)), .descriptors = {}};
  std::memcpy(a.bytes.data(), values, a.bytes.size());
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    for (int64_t i = 0; i < count; ++i) {
      a.descriptors.push_back(find(static_cast<const cudnnBackendDescriptor_t*>(values)[i]));
      if (!a.descriptors.back()->finalized)
        return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "what it is to hold is not finalized");
    }
  d.attributes[name] = std::move(a);
  return CUDNN_STATUS_SUCCESS;
}

// A graph with two products more than forward has is backward: it keeps a matrix (T, T) of each head.
static int64_t workspace_of(const Descriptor& graph) {
  int64_t products = 0, scores = 0;
  for (const Held& op : graph.parts(CUDNN_ATTR_OPERATIONGRAPH_OPS))
    if (op->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
      if (++products == 1) scores = TensorOf(op->part(CUDNN_ATTR_OPERATION_MATMUL_CDESC)).numel();
  return products > 2 ? machine().bytes_a_score * scores : 0;
}

// Of the heuristics: one configuration, which is the graph and its workspace.
static int64_t results(const Descriptor& heuristics, int64_t most, cudnnBackendDescriptor_t* to) {
  if (machine().refusal != CUDNN_STATUS_SUCCESS) {
    last_error =
        std::string("engine 1\nWarning: ") + cudnnGetErrorString(machine().refusal) + "; Reason: x\n";
    return 0;
  }
  const Held graph = heuristics.parts(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)[0];
  const int64_t bytes = workspace_of(*graph);
  Attribute size{CUDNN_TYPE_INT64, std::vector<char>(sizeof bytes), {}};
  std::memcpy(size.bytes.data(), &bytes, sizeof bytes);
  if (most == 0) return 1;
  Descriptor& config = *find(to[0]);
  config.attributes[CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE] = size;
  config.attributes[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH] = {CUDNN_TYPE_BACKEND_DESCRIPTOR, {}, {graph}};
  config.finalized = true;
  return 1;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most, int64_t* count,
                                       void* values) {
  Descriptor& d = *find(of);
  const Rule rule = rule_of(name);
  if (!d.finalized) return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "it is not finalized");
  if (d.type != rule.of || type != rule.type)
    return refuse(CUDNN_STATUS_BAD_PARAM, "it has no such attribute");
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    *count = results(d, most, static_cast<cudnnBackendDescriptor_t*>(values));
    return CUDNN_STATUS_SUCCESS;
  }
  const std::vector<char>& bytes = name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE
                                       ? d.part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
                                             .attributes.at(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE)
                                             .bytes
                                       : d.attributes.at(name).bytes;
  *count = int64_t(bytes.size() / bytes_of(type));
  std::memcpy(values, bytes.data(), size_t(std::min(most, *count)) * bytes_of(type));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t which) {
  Descriptor& d = *find(which);
  const char* wrong = "";
  if (d.type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
    wrong = wrong_with_graph(d);
  else if (d.has(CUDNN_ATTR_OPERATION_MATMUL_CDESC) || d.has(CUDNN_ATTR_OPERATION_POINTWISE_YDESC) ||
           d.has(CUDNN_ATTR_OPERATION_REDUCTION_YDESC) || d.has(CUDNN_ATTR_OPERATION_RESHAPE_YDESC))
    wrong = wrong_with_operation(d);
  if (*wrong) return refuse(CUDNN_STATUS_BAD_PARAM, wrong);
  if (d.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR && machine().refusal != CUDNN_STATUS_SUCCESS &&
      !machine().silently)
    return refuse(machine().refusal, "as the test has asked");
  d.finalized = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_handle,
                                  cudnnBackendDescriptor_t pack_handle) {
  const std::shared_ptr<Descriptor> plan = find(plan_handle), pack = find(pack_handle);
  if (handle->gpu != machine().gpu || !plan->finalized || !pack->finalized)
    return refuse(CUDNN_STATUS_BAD_PARAM, "the handle is of another GPU, or something is not finalized");
  const Descriptor& config = plan->part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const Descriptor& graph = config.part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  const auto ids = pack->values<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack->values<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  if (ids.size() != pointers.size()) return refuse(CUDNN_STATUS_BAD_PARAM, "as many ids as pointers");
  std::map<int64_t, void*> memory;
  for (size_t i = 0; i < ids.size(); ++i) memory[ids[i]] = pointers[i];
  const auto present = [&memory](const Descriptor& op) {
    for (const auto& [name, a] : op.attributes)
      for (const Held& part : a.descriptors) {
        if (part->type != CUDNN_BACKEND_TENSOR_DESCRIPTOR) continue;
        const TensorOf t(*part);
        const auto found = memory.find(t.id);
        if (t.is_virtual) continue;
        if (found == memory.end() || !found->second) return false;
        if (!t.by_value && std::bit_cast<uintptr_t>(found->second) % size_t(t.alignment) != 0) return false;
      }
    return true;
  };
  for (const Held& op : graph.parts(CUDNN_ATTR_OPERATIONGRAPH_OPS))
    if (!present(*op))
      return refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "a pointer is null or not aligned");
  // The workspace is there, and holds nothing that anybody else needs.
  std::memset(pack->value<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE), 0xFF,
              size_t(config.value<int64_t>(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE)));
  run_graph(graph, memory);
  ++machine().cudnn_executions;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace gradus::standin
