// The parts of the harness of the kernels: a call with its inputs and outputs. Each output has a bound for
// the difference between two devices.
#pragma once
#include <functional>
#include <new>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "tests/kernels/kernel_testing.h"

namespace gradus::fuzz {

constexpr double kEps = 0x1p-24;  // of fp32, the type of sums

// Numbers in a buffer of exactly their bytes, at any alignment, so that one byte more is an overflow.
class Array {
 public:
  Array(DType t, const std::vector<double>& values, int64_t shift)
      : t_(t),
        n_(int64_t(values.size())),
        shift_(shift * size_of(t)),
        bytes_(size_t(shift_ + n_ * size_of(t)) + (n_ == 0)) {
    for (int64_t i = 0; i < n_; ++i)
      if (t == DType::I32)
        at<int32_t>(i) = int32_t(values[i]);
      else
        visit_float("fuzz", t, [&]<class T>() { at<T>(i) = T(float(values[i])); });
  }
  CBuf in() const { return {bytes_.data() + shift_, t_}; }
  Out out(Write w) { return {bytes_.data() + shift_, t_, w}; }
  std::vector<double> values() const {
    std::vector<double> v(n_);
    for (int64_t i = 0; i < n_; ++i)
      visit_float("fuzz", t_, [&]<class T>() { v[i] = double(float(const_cast<Array*>(this)->at<T>(i))); });
    return v;
  }

 private:
  template <class T>
  T& at(int64_t i) {
    return reinterpret_cast<T*>(bytes_.data() + shift_)[i];
  }
  DType t_;
  int64_t n_, shift_;
  std::vector<char> bytes_;
};

// The context of a call, as the engine makes it: scratch of exactly the bytes that the cost says, and a
// workspace that all calls share, because it is large.
alignas(64) inline char workspace[kWorkspaceBytes];
struct CallCtx {
  explicit CallCtx(const Cost& cost) : scratch(::operator new(size_t(cost.scratch), kAlignment)) {}
  ~CallCtx() { ::operator delete(scratch, kAlignment); }
  CallCtx(const CallCtx&) = delete;
  operator Ctx() { return {&scalars, &update, scratch, workspace}; }
  static constexpr std::align_val_t kAlignment{64};
  StepScalars scalars{.step = 7};
  UpdateScalars update{.learning_rate = 0.125f, .clip_factor = 0.5f, .updates = 3};
  void* scratch;
};

using In = const std::vector<CBuf>&;
using Outs = const std::vector<Out>&;

struct Result {
  DType t;
  int64_t n;
  double error;                 // the bound of the computed number, before it is rounded to t
  bool in_place = false;        // else the output may be unwanted, and is set or added to
  double least = -2, most = 2;  // the range of the previous numbers, which Add and updates read
};

struct Call {
  const char* name;
  Cost cost;  // says how much scratch it needs
  std::vector<Array> in;
  std::vector<Result> out;
  std::function<void(const Backend&, CallCtx&, In, Outs)> run;
};

// Draws the parts of calls.
struct Draw {
  Choices& choices;
  Rng rng;
  DType t;
  explicit Draw(Choices& c)
      : choices(c),
        rng(uint64_t(c.between(0, 1 << 16)), 0),
        t(c.one_of(std::array{DType::F32, DType::BF16, DType::F16})) {}

  int64_t pick(int64_t least, int64_t most) { return choices.between(least, most); }
  int64_t size(int64_t most) {
    static constexpr int64_t kSizes[] = {0, 1, 2, 7, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257};
    return choices.yes() ? pick(1, std::min<int64_t>(most, 40)) : std::min(most, choices.one_of(kSizes));
  }
  RowShape rows() {  // mostly small; sometimes many rows or long ones
    switch (pick(0, 15)) {
      case 0: return {pick(1, 2), pick(1000, 2100)};
      case 1: return {pick(250, 530), pick(1, 3)};
      default: return {size(20), std::max<int64_t>(1, size(80))};
    }
  }
  std::vector<double> numbers(int64_t n, double least, double most) {
    std::vector<double> v(n);
    for (double& x : v) x = least + (most - least) * rng.uniform();
    return v;
  }
  Array array(DType type, int64_t n, double least = -2, double most = 2) {
    return {type, numbers(n, least, most), pick(0, 3)};
  }
  Array ids(int64_t n, int64_t below) {
    std::vector<double> v(n);
    for (double& x : v) x = double(rng.below(uint64_t(below)));
    return {DType::I32, v, 0};
  }
  DType t_or_fp32() { return choices.yes() ? t : DType::F32; }
  RandomKey key() {
    return {uint64_t(pick(0, 99)), uint32_t(pick(0, 9)), pick(0, 1000), nullptr, pick(0, 1000)};
  }
};

// A result of the cpu, as an input of a backward kernel.
inline Array computed(Draw& d, DType t, int64_t n, const Cost& cost,
                      const std::function<void(CallCtx&, Out)>& run) {
  Array a(t, std::vector<double>(size_t(n)), d.pick(0, 3));
  CallCtx ctx(cost);
  run(ctx, a.out(Write::Set));
  return a;
}

// Runs the call on cpu and emu, with some of the outputs, each set or added to, and compares the results.
inline void compare(Draw& draw, const Call& call) {
  std::vector<CBuf> in;
  for (const Array& a : call.in) in.push_back(a.in());
  std::vector<Array> got[2];
  std::vector<Out> out[2];
  for (const Result& r : call.out) {
    const std::vector<double> before = draw.numbers(r.n, r.least, r.most);
    const bool wanted = r.in_place || draw.pick(0, 3) > 0;
    const Write write = !r.in_place && draw.choices.yes() ? Write::Add : Write::Set;
    const int64_t shift = draw.pick(0, 3);
    for (const int d : {0, 1}) {
      got[d].emplace_back(r.t, before, shift);
      out[d].push_back(wanted ? got[d].back().out(write) : Out{nullptr, r.t});
    }
  }
  emu::set_order(
      draw.choices.one_of(std::array{emu::Order::Forward, emu::Order::Reverse, emu::Order::Shuffled}));
  for (const int d : {0, 1}) {
    CallCtx ctx(call.cost);
    call.run(d == 0 ? cpu_backend() : emu_backend(), ctx, in, out[d]);
  }
  for (size_t o = 0; o < call.out.size(); ++o) {
    const Result& r = call.out[o];
    const std::vector<double> cpu = got[0][o].values(), emu = got[1][o].values();
    const double eps = epsilon_of(r.t), smallest = r.t == DType::F16 ? 0x1p-24 : 0;
    for (int64_t i = 0; i < r.n; ++i) {
      const double allowed = 2 * (eps * std::abs(cpu[i]) + r.error) + smallest;
      EXPECT_TRUE(cpu[i] == emu[i] || std::abs(cpu[i] - emu[i]) <= allowed)
          << call.name << ", output " << o << " in " << name_of(r.t) << ", element " << i << " of " << r.n
          << ": cpu " << cpu[i] << ", emu " << emu[i] << ", allowed difference " << allowed
          << formula_of(call.name);
    }
  }
}

}  // namespace gradus::fuzz
