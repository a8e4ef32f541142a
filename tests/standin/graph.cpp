// The graphs of cuDNN's backend interface on tensors of four dimensions: what may be built, and what it
// computes.
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include "kernels/dtype.h"
#include "tests/standin/descriptor.h"

namespace gradus::standin {

namespace {

using Four = std::array<int64_t, 4>;

Four four(const Descriptor& d, cudnnBackendAttributeName_t name) {
  const auto v = d.values<int64_t>(name);
  return {v.at(0), v.at(1), v.at(2), v.at(3)};
}

TensorOf tensor(const Descriptor& op, cudnnBackendAttributeName_t name) { return TensorOf(op.part(name)); }

cudnnBackendAttributeName_t output_of(const Descriptor& op) {
  switch (op.type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: return CUDNN_ATTR_OPERATION_MATMUL_CDESC;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: return CUDNN_ATTR_OPERATION_POINTWISE_YDESC;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: return CUDNN_ATTR_OPERATION_REDUCTION_YDESC;
    default: return CUDNN_ATTR_OPERATION_RESHAPE_YDESC;
  }
}

// The types that NVIDIA's front end gives: indices are computed as integers, comparisons as booleans.
const char* wrong_with_pointwise(const Descriptor& op) {
  const Descriptor& how = op.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  const auto mode = how.value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  const auto math = how.value<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC);
  const TensorOf y = tensor(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
  const bool index = mode == CUDNN_POINTWISE_GEN_INDEX, compare = mode == CUDNN_POINTWISE_CMP_GE;
  const bool select = mode == CUDNN_POINTWISE_BINARY_SELECT;
  if (math != (index ? CUDNN_DATA_INT32 : compare ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT))
    return "an index is computed as INT32, a comparison as BOOLEAN, all else as FLOAT";
  if ((index && y.t != CUDNN_DATA_INT32) || (compare && y.t != CUDNN_DATA_BOOLEAN))
    return "an index is INT32, the result of a comparison BOOLEAN";
  const int inputs =
      1 + op.has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC) + op.has(CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
  const bool unary = index || mode == CUDNN_POINTWISE_EXP || mode == CUDNN_POINTWISE_LOG;
  if (inputs != (unary ? 1 : select ? 3 : 2)) return "the mode takes another number of inputs";
  if (select && tensor(op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC).t != CUDNN_DATA_BOOLEAN)
    return "what selects is BOOLEAN";
  for (const auto name : {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                          CUDNN_ATTR_OPERATION_POINTWISE_TDESC})
    if (op.has(name) && !tensor(op, name).fits(y)) return "an input's size is neither the output's nor 1";
  return "";
}

const char* wrong_with_matmul(const Descriptor& op) {
  const Four a = tensor(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC).n,
             b = tensor(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC).n,
             c = tensor(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC).n;
  return a == Four{c[0], c[1], c[2], b[2]} && b == Four{c[0], c[1], a[3], c[3]} ? ""
                                                                                : "the sizes of a product";
}

// Another way to walk the same memory: the same sizes with the same strides, in another order.
const char* wrong_with_reshape(const Descriptor& op) {
  const auto walk = [](const TensorOf& t) {
    std::multiset<std::pair<int64_t, int64_t>> walk;
    for (int d = 0; d < 4; ++d)
      if (t.n[d] > 1) walk.emplace(t.n[d], t.stride[d]);
    return walk;
  };
  const TensorOf x = tensor(op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC),
                 y = tensor(op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
  return walk(x) == walk(y) ? "" : "a reshape that is no transposition is not known here";
}

float rounded(cudnnDataType_t t, float x) {
  switch (t) {
    case CUDNN_DATA_HALF: return float(fp16(x));
    case CUDNN_DATA_BFLOAT16: return float(bf16(x));
    default: return x;
  }
}

// Runs the operations of a graph, one after the other.
class Run {
 public:
  explicit Run(const std::map<int64_t, void*>& memory) : memory_(memory) {}

  void operation(const Descriptor& op) {
    switch (op.type) {
      case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: return matmul(op);
      case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: return pointwise(op);
      case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: return reduce(op);
      default: return reshape(op);
    }
  }

 private:
  using Values = std::vector<float>;  // of a tensor of some sizes, dense

  template <class F>
  static void walk(const Four& n, const Four& stride, F f) {  // f(number, offset)
    int64_t i = 0;
    for (int64_t a = 0; a < n[0]; ++a)
      for (int64_t b = 0; b < n[1]; ++b)
        for (int64_t c = 0; c < n[2]; ++c)
          for (int64_t d = 0; d < n[3]; ++d)
            f(i++, a * stride[0] + b * stride[1] + c * stride[2] + d * stride[3]);
  }
  // What lies between operations lies in buffers of fp32, at the offsets that the tensor's strides say.
  Values& between(const TensorOf& t) {
    Values& values = between_[t.id];
    int64_t size = 1;
    for (int d = 0; d < 4; ++d) size += (t.n[d] - 1) * t.stride[d];
    values.resize(size_t(size));
    return values;
  }
  Values read(const TensorOf& t, const Four& n) {  // repeated where it has size 1
    Four stride = t.stride;
    for (int d = 0; d < 4; ++d) stride[d] = t.n[d] == 1 ? 0 : stride[d];
    Values values(size_t(n[0] * n[1] * n[2] * n[3]));
    const auto from = [&](auto* p) {
      walk(n, stride, [&](int64_t i, int64_t at) { values[i] = float(p[at]); });
    };
    if (t.is_virtual)
      from(between(t).data());
    else if (t.t == CUDNN_DATA_FLOAT)
      from(static_cast<const float*>(memory_.at(t.id)));
    else if (t.t == CUDNN_DATA_HALF)
      from(static_cast<const fp16*>(memory_.at(t.id)));
    else
      from(static_cast<const bf16*>(memory_.at(t.id)));
    return values;
  }
  void write(const TensorOf& t, const Values& values) {
    const auto to = [&]<class T>(T* p) {
      walk(t.n, t.stride, [&](int64_t i, int64_t at) { p[at] = T(rounded(t.t, values[i])); });
    };
    if (t.is_virtual)
      to(between(t).data());
    else if (t.t == CUDNN_DATA_FLOAT)
      to(static_cast<float*>(memory_.at(t.id)));
    else if (t.t == CUDNN_DATA_HALF)
      to(static_cast<fp16*>(memory_.at(t.id)));
    else
      to(static_cast<bf16*>(memory_.at(t.id)));
  }

  void matmul(const Descriptor& op) {
    const TensorOf a = tensor(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC),
                   b = tensor(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC),
                   c = tensor(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
    const Values x = read(a, a.n), y = read(b, b.n);
    Values z(size_t(c.numel()));
    const int64_t M = c.n[2], N = c.n[3], K = a.n[3];
    for (int64_t row = 0; row < c.n[0] * c.n[1] * M; ++row)
      for (int64_t k = 0; k < K; ++k) {
        const float factor = x[row * K + k];
        const float* from = &y[(row / M * K + k) * N];
        for (int64_t j = 0; j < N; ++j) z[row * N + j] += factor * from[j];
      }
    write(c, z);
  }

  void pointwise(const Descriptor& op) {
    const Descriptor& how = op.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const TensorOf out = tensor(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    Values y(size_t(out.numel()));
    const auto input = [&](cudnnBackendAttributeName_t name) {
      return op.has(name) ? read(tensor(op, name), out.n) : Values(y.size());
    };
    const Values x = input(CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
                 b = input(CUDNN_ATTR_OPERATION_POINTWISE_BDESC),
                 t = input(CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    const auto each = [&](auto f) {
      for (size_t i = 0; i < y.size(); ++i) y[i] = f(i);
    };
    switch (how.value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE)) {
      case CUDNN_POINTWISE_ADD: each([&](size_t i) { return x[i] + b[i]; }); break;
      case CUDNN_POINTWISE_SUB: each([&](size_t i) { return x[i] - b[i]; }); break;
      case CUDNN_POINTWISE_MUL: each([&](size_t i) { return x[i] * b[i]; }); break;
      case CUDNN_POINTWISE_DIV: each([&](size_t i) { return x[i] / b[i]; }); break;
      case CUDNN_POINTWISE_EXP: each([&](size_t i) { return std::exp(x[i]); }); break;
      case CUDNN_POINTWISE_LOG: each([&](size_t i) { return std::log(x[i]); }); break;
      case CUDNN_POINTWISE_CMP_GE: each([&](size_t i) { return float(x[i] >= b[i]); }); break;
      case CUDNN_POINTWISE_BINARY_SELECT: each([&](size_t i) { return t[i] != 0 ? x[i] : b[i]; }); break;
      case CUDNN_POINTWISE_GEN_INDEX: {
        Four along{};
        along[size_t(how.value<int64_t>(CUDNN_ATTR_POINTWISE_AXIS))] = 1;
        walk(out.n, along, [&](int64_t i, int64_t index) { y[i] = float(index); });
      }
    }
    write(out, y);
  }

  void reduce(const Descriptor& op) {
    const auto what = op.part(CUDNN_ATTR_OPERATION_REDUCTION_DESC)
                          .value<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
    const TensorOf in = tensor(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC),
                   out = tensor(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
    const Values x = read(in, in.n);
    const bool max = what == CUDNN_REDUCE_TENSOR_MAX;
    Values y(size_t(out.numel()), max ? -INFINITY : 0.0f);
    Four dense{out.n[1] * out.n[2] * out.n[3], out.n[2] * out.n[3], out.n[3], 1};
    for (int d = 0; d < 4; ++d) dense[d] = out.n[d] == 1 ? 0 : dense[d];
    walk(in.n, dense, [&](int64_t i, int64_t at) { y[at] = max ? std::fmax(y[at], x[i]) : y[at] + x[i]; });
    write(out, y);
  }

  void reshape(const Descriptor& op) {
    const TensorOf x = tensor(op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC),
                   y = tensor(op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
    const Values values = read(x, x.n);
    Values& to = between(y);
    walk(x.n, x.stride, [&](int64_t i, int64_t at) { to[at] = rounded(y.t, values[i]); });
  }

  const std::map<int64_t, void*>& memory_;
  std::map<int64_t, Values> between_;
};

}  // namespace

TensorOf::TensorOf(const Descriptor& d)
    : id(d.value<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID)),
      t(d.value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)),
      n(four(d, CUDNN_ATTR_TENSOR_DIMENSIONS)),
      stride(four(d, CUDNN_ATTR_TENSOR_STRIDES)),
      is_virtual(d.value<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL)),
      by_value(d.value<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE)),
      alignment(d.value<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)) {}
bool TensorOf::fits(const TensorOf& big) const {
  bool fits = true;
  for (int d = 0; d < 4; ++d) fits = fits && (n[d] == 1 || n[d] == big.n[d]);
  return fits;
}

const char* wrong_with_operation(const Descriptor& op) {
  switch (op.type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: return wrong_with_matmul(op);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: return wrong_with_pointwise(op);
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: return wrong_with_reshape(op);
    default:
      return tensor(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC)
                     .fits(tensor(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC))
                 ? ""
                 : "the sizes of a reduction";
  }
}

// Each tensor is made once, and what is not in memory is made before it is read.
const char* wrong_with_graph(const Descriptor& graph) {
  std::set<int64_t> made;
  for (const Held& op : graph.parts(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    const TensorOf out = tensor(*op, output_of(*op));
    for (const auto& [name, a] : op->attributes)
      for (const Held& part : a.descriptors) {
        if (name == output_of(*op) || part->type != CUDNN_BACKEND_TENSOR_DESCRIPTOR) continue;
        const TensorOf in(*part);
        if (in.is_virtual && !made.count(in.id)) return "a tensor is read that nothing makes";
      }
    if (!made.insert(out.id).second) return "two operations make the same tensor";
  }
  return "";
}

void run_graph(const Descriptor& graph, const std::map<int64_t, void*>& memory) {
  Run run(memory);
  for (const Held& op : graph.parts(CUDNN_ATTR_OPERATIONGRAPH_OPS)) run.operation(*op);
}

}  // namespace gradus::standin
