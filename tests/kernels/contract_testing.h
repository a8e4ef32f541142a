// What tests of kernels.h's promises share: an output with old numbers in it, what Set or Add must make of
// them, and how far from the fp64 result that may be.
#pragma once
#include <cstring>
#include <limits>

#include "tests/kernels/kernel_testing.h"

namespace gradus {

constexpr double kNotWritten = std::numeric_limits<double>::quiet_NaN();

// What a kernel computes for one output: r in fp64 (kNotWritten: this element is not the kernel's), and what
// the kernel's own result may be off by before it is rounded to the output's dtype.
struct Computed {
  explicit Computed(int64_t n) : r(n, kNotWritten), error(n, 0.0) {}
  void add(int64_t i, double value, double size) {
    r[i] = std::isnan(r[i]) ? value : r[i] + value;
    error[i] += size;
  }
  std::vector<double> r, error;
};

inline double epsilon_of_sums(DType t) { return epsilon_of(t == DType::F64 ? DType::F64 : DType::F32); }

// Scratch and workspace full of numbers that are not numbers: a kernel finds nothing there. And more of them
// behind the workspace, which nothing may change.
struct DirtyCtx : TestCtx {
  static constexpr int64_t kBehind = 1 << 20;
  DirtyCtx() : TestCtx(Cost{.scratch = 1 << 20}) {
    workspace.resize(workspace.size() + kBehind / sizeof(Piece));
    std::memset(scratch.data(), 0xFF, scratch.size());
    std::memset(static_cast<void*>(workspace.data()), 0xFF, workspace.size() * sizeof(Piece));
  }
  ~DirtyCtx() {
    wait_for_kernels();
    const char* const end = reinterpret_cast<const char*>(workspace.data() + workspace.size());
    EXPECT_EQ(std::count(end - kBehind, end, char(0xFF)), kBehind) << "a kernel wrote beyond the workspace";
  }
};

enum class Wish { Unwanted, Set, Add };
constexpr Wish kWishes[] = {Wish::Unwanted, Wish::Set, Wish::Add};
constexpr Wish kWritten[] = {Wish::Set, Wish::Add};

// An output of a kernel. Every other element begins as the negative of what is to come, rounded: added to
// that, a result that was rounded before the sum leaves nothing, and one that was not leaves its last digits.
class Output {
 public:
  Output(DType t, Wish wish, Computed want)
      : wish_(wish), want_(std::move(want)), buffer_(Buffer::random(t, int64_t(want_.r.size()), 77)) {
    old_ = buffer_.values();
    for (size_t i = 0; i < old_.size(); i += 2)
      if (!std::isnan(want_.r[i])) old_[i] = -want_.r[i];
    buffer_ = Buffer(t, old_);
    old_ = buffer_.values();
  }
  Out out() {
    if (wish_ == Wish::Unwanted) return {nullptr, buffer_.type()};
    return buffer_.out(wish_ == Wish::Add ? Write::Add : Write::Set);
  }
  void expect(const std::string& what) const {
    const DType t = buffer_.type();
    const std::vector<double> got = buffer_.values();
    std::vector<double> expected = old_, allowed(old_.size(), 0.0);
    for (size_t i = 0; i < old_.size(); ++i) {
      if (wish_ == Wish::Unwanted || std::isnan(want_.r[i])) continue;
      expected[i] = want_.r[i] + (wish_ == Wish::Add ? old_[i] : 0);
      const double roundings = epsilon_of(t) + (wish_ == Wish::Add ? epsilon_of_sums(t) : 0);
      allowed[i] = want_.error[i] + roundings * (std::abs(expected[i]) + want_.error[i]) +
                   (t == DType::F16 ? 0x1p-25 : 0);
    }
    constexpr const char* kHow[] = {" unwanted", " Set", " Add"};
    expect_close(what + kHow[int(wish_)] + " " + name_of(t), got, expected,
                 [&](int64_t i) { return allowed[i]; });
  }

 private:
  Wish wish_;
  Computed want_;
  std::vector<double> old_;
  Buffer buffer_;
};

}  // namespace gradus
