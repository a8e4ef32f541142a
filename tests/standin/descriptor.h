// cuDNN's one kind of object, in the stand-in: attributes by name, of a declared type, frozen when finalized.
#pragma once
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "tests/standin/cudnn.h"

namespace gradus::standin {

struct Descriptor;
using Held = std::shared_ptr<const Descriptor>;  // others may outlive the caller's own

struct Attribute {
  cudnnBackendAttributeType_t type;
  std::vector<char> bytes;
  std::vector<Held> descriptors;  // of CUDNN_TYPE_BACKEND_DESCRIPTOR
};

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes = {};

  bool has(cudnnBackendAttributeName_t name) const { return attributes.count(name) > 0; }
  const Descriptor& part(cudnnBackendAttributeName_t name) const {
    return *attributes.at(name).descriptors.at(0);
  }
  const std::vector<Held>& parts(cudnnBackendAttributeName_t name) const {
    return attributes.at(name).descriptors;
  }
  template <class T>
  std::vector<T> values(cudnnBackendAttributeName_t name) const {
    const std::vector<char>& bytes = attributes.at(name).bytes;
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  template <class T>
  T value(cudnnBackendAttributeName_t name) const {
    T value;
    std::memcpy(&value, attributes.at(name).bytes.data(), sizeof value);
    return value;
  }
};

struct TensorOf {  // a tensor descriptor's attributes
  int64_t id;
  cudnnDataType_t t;
  std::array<int64_t, 4> n, stride;
  bool is_virtual, by_value;
  int64_t alignment;
  explicit TensorOf(const Descriptor&);
  int64_t numel() const { return n[0] * n[1] * n[2] * n[3]; }
  bool fits(const TensorOf& big) const;  // each size is that of `big`, or 1 and repeated
};

// What cuDNN would say of an operation or a graph of them; "" if nothing.
const char* wrong_with_operation(const Descriptor&);
const char* wrong_with_graph(const Descriptor& graph);

// Interprets a graph on tensors in memory, in fp32; each tensor holds what its type can hold.
void run_graph(const Descriptor& graph, const std::map<int64_t, void*>& memory);

}  // namespace gradus::standin
