#include "src/tensor/tensor.h"

#include "src/memory/device_timing.h"
#include "src/tensor/captured_step.h"

namespace gradus {

Storage::Storage(Device& device, int64_t bytes, Kind kind, std::string_view name, const Shape& shape)
    : device_(&device),
      block_(device.allocator().allocate(bytes, kind, name, shape),
             [&device](Block* block) { device.allocator().free(block); }) {}

Block& Storage::block() const {
  if (!block_ && on_read) on_read();
  check(block_ != nullptr, "tensor '", dropped_name_, "' has no memory: ", where_);
  return *block_;
}

void Storage::drop(std::string_view where) {
  dropped_name_ = name();
  dropped_bytes_ = bytes();
  where_ = where;
  block_.reset();
}

void Storage::refill(const Storage& remade) {
  check(remade.bytes() == dropped_bytes_, "'", dropped_name_, "' had ", dropped_bytes_,
        " bytes, recomputed it has ", remade.bytes(), "; does the function depend on values that changed?");
  block_ = remade.block_;
}

Tensor::Tensor(Device& device, const Shape& shape, DType dtype, Kind kind, std::string_view name)
    : storage_(std::make_shared<Storage>(device, shape.bytes(dtype, name), kind, name, shape)),
      shape_(shape),
      dtype_(dtype) {}

Storage& Tensor::storage() const {
  check(storage_ != nullptr, "tensor: read of an undefined tensor (never assigned, or not saved by its op)");
  return *storage_;
}

void* Tensor::here() const {
  check(!of_another_context(device()), "tensor '", storage().name(),
        "' is of another context than the current one; make its context current, or copy the tensor with ",
        "to_host() and from_host()");
  if (device().records) current().captured_step->reads_or_writes(*this);
  return data();
}

Out Tensor::out(Write w) {
  ++storage().version;
  if (device().records) current().captured_step->writes(storage_);
  return {here(), dtype_, w};
}

Tensor Tensor::reshape(const Shape& shape) const {
  check(shape.numel() == numel(), "reshape: ", shape_, " has ", numel(), " elements, ", shape, " has ",
        shape.numel());
  Tensor t = *this;
  t.shape_ = shape;
  return t;
}

Tensor Tensor::narrow(int64_t begin, int64_t count) const {
  check(shape_.rank() > 0 && begin >= 0 && count >= 0 && begin <= shape_[0] - count, "narrow: ", count,
        " rows from row ", begin, " do not exist in ", shape_);
  check(!slot.wanted() || !current().tape(), "narrow: rows [", begin, ", ", begin + count, ") of ", shape_,
        " would get no gradient, but a tape records and this tensor wants one; if you need none, use ",
        "detach().narrow()");
  Tensor t = detach();
  t.offset_ += shape_[0] == 0 ? 0 : begin * (numel() / shape_[0]);
  t.shape_ = Shape();
  for (int i = 0; i < shape_.rank(); ++i) t.shape_.push_back(i == 0 ? count : shape_[i]);
  return t;
}

Tensor Tensor::detach() const {
  Tensor t = *this;
  t.slot = {};
  return t;
}

Tensor empty(const Tensor& like, const Shape& shape, DType dtype, std::string_view name) {
  return Tensor(like.device(), shape, dtype, Kind::Temporary, name);
}
Tensor empty(const Tensor& like, const Shape& shape, std::string_view name) {
  return empty(like, shape, like.dtype(), name);
}
Tensor empty_like(const Tensor& like, std::string_view name) { return empty(like, like.shape(), name); }

// Calls f.operator()<T>() with the C++ type T of any dtype, floating or integer.
template <class F>
static void visit_any(DType t, F&& f) {
  switch (t) {
    case DType::I64: return f.template operator()<int64_t>();
    case DType::I32: return f.template operator()<int32_t>();
    case DType::I8: return f.template operator()<int8_t>();
    case DType::U8: return f.template operator()<uint8_t>();
    default: return visit_float("copy", t, f);
  }
}

template <class To, class From>
static To convert(From x) {
  if constexpr (sizeof(To) == 2)
    return To(float(x));  // bf16 and fp16 are converted from fp32
  else
    return To(x);
}

template <class V>
void copy_in(Tensor& to, const std::vector<V>& values) {
  check(int64_t(values.size()) == to.numel(), "copy: ", values.size(), " values for a tensor ", to.shape());
  visit_any(to.dtype(), [&]<class T>() {
    std::vector<T> converted(values.size());
    for (size_t i = 0; i < values.size(); ++i) converted[i] = convert<T>(values[i]);
    ++to.storage().version;
    to.device().copy_in(to.data(), converted.data(), to.bytes());
  });
}

void copy_from_host(Tensor& to, const std::vector<double>& values) { copy_in(to, values); }

template <class V>
Tensor from_host(Device& device, const std::vector<V>& values, const Shape& shape, DType dtype, Kind kind,
                 std::string_view name) {
  Tensor t(device, shape, dtype, kind, name);
  copy_in(t, values);
  return t;
}

template <class V>
std::vector<V> to_host(const Tensor& x) {
  std::vector<V> values(x.numel());
  visit_any(x.dtype(), [&]<class T>() {
    std::vector<T> raw(values.size());
    x.device().copy_out(raw.data(), x.data(), x.bytes());
    for (size_t i = 0; i < values.size(); ++i) values[i] = V(raw[i]);
  });
  return values;
}

template Tensor from_host(Device&, const std::vector<double>&, const Shape&, DType, Kind, std::string_view);
template Tensor from_host(Device&, const std::vector<float>&, const Shape&, DType, Kind, std::string_view);
template Tensor from_host(Device&, const std::vector<int32_t>&, const Shape&, DType, Kind, std::string_view);
template std::vector<double> to_host(const Tensor&);
template std::vector<float> to_host(const Tensor&);
template std::vector<int32_t> to_host(const Tensor&);

double item(const Tensor& x) {
  check(x.numel() == 1, "item: the tensor is ", x.shape(), "; only a single element can be read");
  return to_host<double>(x)[0];
}

}  // namespace gradus
