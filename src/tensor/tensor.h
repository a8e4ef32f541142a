// Tensor = shared Storage + element offset + shape + dtype, always contiguous (row-major).
// A tensor never computes: ops/ do. Copying a Tensor copies a reference, not the numbers.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/shape.h"
#include "src/memory/device.h"

namespace gradus {

struct Leaf;  // where a parameter's gradient accumulates (autograd/tape.h)

// Identifies a tensor in the backward pass. id 0: no gradient is wanted. A reshaped view shares the slot of
// its origin, because its gradient has as many elements; the gradient arrives in the origin's shape.
struct Slot {
  int64_t id = 0;
  std::shared_ptr<Leaf*> leaf = {};  // set for parameters; holds nullptr after the parameter ends
  bool wanted() const { return id != 0; }
};

// One allocation, shared by tensors; when the last of them ends, the block returns to the allocator. A
// storage may be dropped and refilled while tensors refer to it. Reading a dropped storage is an error that
// names it, unless `on_read` is set. Dropping and refilling do not count as writes.
class Storage {
 public:
  Storage(Device& device, int64_t bytes, Kind kind, std::string_view name, const Shape& shape);
  Storage(const Storage&) = delete;

  Device& device() const { return *device_; }
  char* data() const { return block().data(); }
  int64_t bytes() const { return dropped() ? dropped_bytes_ : block_->requested; }
  Kind kind() const { return block().kind; }
  const std::string& name() const { return dropped() ? dropped_name_ : block_->name; }
  void set_kind(Kind kind) { device_->allocator().change_kind(&block(), kind); }

  bool dropped() const { return block_ == nullptr; }  // name() and bytes() still work
  void drop(std::string_view where);   // frees the memory; the error says `where` the values are
  void refill(const Storage& remade);  // shares the memory of one with the same contents
  std::function<void()> on_read;       // called when a dropped storage is read; refills it

  Block& block() const;
  uint32_t version = 0;  // counts writes; a tape compares it to detect that a saved tensor was changed

 private:
  Device* device_;
  std::shared_ptr<Block> block_;
  std::string dropped_name_, where_;  // while it is dropped
  int64_t dropped_bytes_ = 0;
};

class Tensor {
 public:
  Tensor() = default;  // undefined: no storage
  Tensor(Device& device, const Shape& shape, DType dtype, Kind kind, std::string_view name);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  int64_t numel() const { return shape_.numel(); }
  int64_t bytes() const { return numel() * size_of(dtype_); }
  // Rows of length shape()[-1]: all dimensions except the last become one.
  RowShape rows() const { return {shape_.rank() ? numel() / std::max<int64_t>(shape_[-1], 1) : 1, last()}; }
  int64_t last() const { return shape_.rank() ? shape_[-1] : 1; }
  Device& device() const { return storage().device(); }
  Storage& storage() const;
  bool shares_storage() const { return storage_.use_count() > 1; }

  // For kernels of the current context; kernels of a different context would compute on a different device.
  // Errors, which ops let through: undefined; of a different context; dropped without on_read; and the errors
  // of on_read: no memory (message: out_of_memory.cpp), ranks that disagree or have failed (parallel/comm).
  CBuf in() const { return {here(), dtype_}; }
  Out set() { return out(Write::Set); }  // to be overwritten
  Out add() { return out(Write::Add); }  // to be added to
  Out out(Write w);

  Tensor reshape(const Shape& shape) const;  // the same elements in another shape
  // Rows [begin, begin+count) of the first dimension. A part has no gradient of its own, so it is an error if
  // a tape records and this tensor wants a gradient; use detach().narrow() then.
  Tensor narrow(int64_t begin, int64_t count) const;
  Tensor detach() const;  // the same elements, through which no gradient flows

  Slot slot;

 private:
  template <class T>
  friend std::vector<T> to_host(const Tensor& x);
  template <class T>
  friend void copy_in(Tensor& to, const std::vector<T>& values);
  void* data() const { return storage().data() + offset_ * size_of(dtype_); }
  void* here() const;

  std::shared_ptr<Storage> storage_;
  int64_t offset_ = 0;
  Shape shape_;
  DType dtype_ = DType::F32;
};

inline CBuf in_or_none(const Tensor& x) { return x.defined() ? x.in() : CBuf{}; }

// The dtype of losses and statistics when activations have dtype t.
constexpr DType statistics_dtype(DType t) { return t == DType::F64 ? DType::F64 : DType::F32; }

// New tensors of kind Temporary on the device of `like`.
Tensor empty_like(const Tensor& like, std::string_view name);
Tensor empty(const Tensor& like, const Shape& shape, std::string_view name);
Tensor empty(const Tensor& like, const Shape& shape, DType dtype, std::string_view name);

// Copies between host and device. Values are converted: T is double, float or int32_t, the tensor has any
// dtype of that family.
template <class T>
Tensor from_host(Device& device, const std::vector<T>& values, const Shape& shape, DType dtype, Kind kind,
                 std::string_view name);
template <class T>
std::vector<T> to_host(const Tensor& x);
void copy_from_host(Tensor& to, const std::vector<double>& values);
double item(const Tensor& x);  // reads the value of a one-element tensor back from the device

}  // namespace gradus
