// A tensor's sizes: up to five int64_t dimensions, by value, without allocation.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <sstream>
#include <string>
#include <string_view>

#include "kernels/dtype.h"

namespace gradus {

class Shape {
 public:
  static constexpr int kMaxRank = 5;
  Shape() = default;  // rank 0: a scalar, one element
  Shape(std::initializer_list<int64_t> dims) {
    check(dims.size() <= kMaxRank, "shape: ", dims.size(), " dimensions; at most ", kMaxRank);
    for (int64_t d : dims) push_back(d);
  }
  void push_back(int64_t d) {
    check(rank_ < kMaxRank, "shape: more than ", kMaxRank, " dimensions");
    check(d >= 0, "shape: size ", d, " is negative");
    dims_[rank_++] = d;
  }
  int rank() const { return rank_; }
  int64_t operator[](int i) const {  // negative i counts from the end
    const int at = i < 0 ? i + rank_ : i;
    check(at >= 0 && at < rank_, "shape: dimension ", i, " of ", *this, " does not exist");
    return dims_[at];
  }
  // The number of elements; rejects products that do not fit in an int64.
  int64_t numel() const {
    int64_t n = std::count(begin(), end(), 0) == 0;
    for (int i = 0; i < rank_; ++i)
      check(!__builtin_mul_overflow(n, dims_[i], &n), "shape: ", *this,
            " has more elements than an int64 can count");
    return n;
  }
  // The bytes of this many elements of a dtype. `what` begins the error if they do not fit.
  int64_t bytes(DType t, std::string_view what = "shape") const {
    int64_t n = 0;
    check(!__builtin_mul_overflow(numel(), size_of(t), &n), what, ": ", *this, " of ", name_of(t),
          " has more bytes than an int64 can count");
    return n;
  }
  // The same sizes with the last one replaced.
  Shape with_last(int64_t d) const {
    check(rank_ > 0, "shape: a scalar has no last dimension");
    Shape s = *this;
    --s.rank_;
    s.push_back(d);
    return s;
  }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + rank_; }
  bool operator==(const Shape& o) const { return rank_ == o.rank_ && std::equal(begin(), end(), o.begin()); }

  friend std::ostream& operator<<(std::ostream& out, const Shape& s) {
    out << '[';
    for (int i = 0; i < s.rank_; ++i) out << (i ? "," : "") << s.dims_[i];
    return out << ']';
  }
  std::string text() const {  // "[8,64,128]"
    std::ostringstream out;
    out << *this;
    return out.str();
  }

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace gradus
