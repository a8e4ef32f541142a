// Tests the contract of kernels/kernels.h for any kernel. A test has the call of the kernel and its expected
// outputs, in fp64; expect_contract makes the calls that the contract allows: each output absent, Set or Add,
// in each of its dtypes, in any combination with the other outputs.
#pragma once
#include <omp.h>

#include <cstring>
#include <limits>

#include "tests/kernels/kernel_testing.h"

namespace gradus {

// The nearest number of dtype t, ties to even: computed in fp64, not by the conversions under test.
inline double rounded(DType t, double x) {
  if (t == DType::F64 || x == 0 || !std::isfinite(x)) return x;
  if (t == DType::F32) return double(float(x));
  const int digits = t == DType::BF16 ? 8 : 11, least_exponent = t == DType::BF16 ? -126 : -14;
  const double most = t == DType::BF16 ? 0x1.FEp127 : 65504;
  const double ulp = std::ldexp(1.0, std::max(std::ilogb(x), least_exponent) - digits + 1);
  const double nearest = std::nearbyint(x / ulp) * ulp;
  return std::abs(nearest) > most ? std::copysign(INFINITY, x) : nearest;
}

// One output of a kernel: the dtypes it may have, its values, and the allowed errors, in epsilons of fp32 (of
// fp64 if the output is fp64). Without errors, the result is exact except for its last rounding.
constexpr double kNotWritten = std::numeric_limits<double>::lowest();  // the kernel must not write it
struct Expected {
  std::string name;
  std::vector<DType> types;
  std::vector<double> value, error = {};

  // n sums, to which terms are added one by one.
  static Expected sums(std::string name, std::vector<DType> types, int64_t n) {
    return {std::move(name), std::move(types), std::vector<double>(n, kNotWritten),
            std::vector<double>(n, 0.0)};
  }
  void add(int64_t i, double term, double term_error) {
    value[i] = value[i] == kNotWritten ? term : value[i] + term;
    error[i] += term_error;
  }
};

// Gradients of parameters and states of optimizers: T or fp32.
inline std::vector<DType> t_or_fp32(DType T) {
  return T == DType::F32 ? std::vector{T} : std::vector{T, DType::F32};
}
// The dtype of statistics.
inline DType stat(DType T) { return T == DType::F64 ? T : DType::F32; }

// What an output of dtype t holds after a kernel whose finished result is r: round(r), or round(old + r).
inline double written(DType t, Write w, double old, double r) {
  const DType arithmetic = stat(t);
  r = rounded(arithmetic, r);
  return rounded(t, w == Write::Set ? r : rounded(arithmetic, old + r));
}

// `got` was written over `old`: it must be the rounding of some r within the error; or, if a library may
// round r to t before it adds, the result of that.
inline void expect_written(const std::string& op, const Expected& e, DType t, Write w,
                           const std::vector<double>& old, const std::vector<double>& got,
                           bool may_round_first = false) {
  ASSERT_EQ(got.size(), e.value.size()) << op << ", " << e.name;
  for (size_t i = 0; i < got.size(); ++i) {
    if (e.value[i] == kNotWritten) {
      ASSERT_TRUE(got[i] == old[i] || (std::isnan(got[i]) && std::isnan(old[i])))
          << op << ", " << e.name << ": element " << i << " of " << got.size()
          << " must not be written; it was " << old[i] << ", and is " << got[i];
      continue;
    }
    const double slack = e.error.empty() ? 0 : e.error[i] * epsilon_of(stat(t));
    const double before = w == Write::Add ? old[i] : 0;
    const double least_r = e.value[i] - slack, most_r = e.value[i] + slack;
    const double least = written(t, w, before, least_r), most = written(t, w, before, most_r);
    const bool rounded_first = may_round_first && got[i] >= written(t, w, before, rounded(t, least_r)) &&
                               got[i] <= written(t, w, before, rounded(t, most_r));
    ASSERT_TRUE((got[i] >= least && got[i] <= most) || rounded_first ||
                (std::isnan(got[i]) && std::isnan(e.value[i])))
        << op << ", " << e.name << " in " << name_of(t) << ", Write::" << (w == Write::Add ? "Add" : "Set")
        << " into " << before << ": element " << i << " of " << got.size() << ": got " << got[i]
        << ", expected " << least << " to " << most << " (r = " << e.value[i] << ")" << formula_of(op);
  }
}

struct TestedCall {
  std::string op;  // begins with the entry's name, for messages
  std::vector<Expected> outputs;
  std::function<void(const Ctx&, const std::vector<Out>&)> call;
  Cost cost = {};  // for its scratch
  // Add adds exactly the result that Set writes to the old value. A library does not promise this, and may
  // round its result to C's type before it adds.
  bool adds_same_bits = true;
};

// One of the ways to call a kernel: for each output 0 (not wanted), or 1 + 2 (index of its dtype) + (is Add).
using Way = std::vector<int>;
// Every output in each of its dtypes with Set and Add; adjacent outputs have different Writes.
inline std::vector<Way> some_ways(const std::vector<Expected>& outputs) {
  size_t count = 0;
  for (const Expected& e : outputs) count = std::max(count, 2 * e.types.size());
  std::vector<Way> ways(count);
  for (size_t k = 0; k < count; ++k)
    for (size_t i = 0; i < outputs.size(); ++i)
      ways[k].push_back(1 + int((k + i) % (2 * outputs[i].types.size())));
  return ways;
}
// All ways: each subset of wanted outputs, in each mix of dtypes and Writes.
inline std::vector<Way> all_ways(const std::vector<Expected>& outputs) {
  std::vector<Way> ways{{}};
  for (const Expected& e : outputs) {
    std::vector<Way> longer;
    for (const Way& way : ways)
      for (int choice = 0; choice <= int(2 * e.types.size()); ++choice) {
        longer.push_back(way);
        longer.back().push_back(choice);
      }
    ways = longer;
  }
  return ways;
}

// Not only scratch but also the workspace is filled with NaN, because a kernel must not rely on its content.
// More NaN follow after the workspace, which no kernel may change.
struct DirtyCtx : TestCtx {
  static constexpr int64_t kBehind = 1 << 20;
  explicit DirtyCtx(const Cost& cost = {}) : TestCtx(cost) {
    workspace.resize(workspace.size() + kBehind / sizeof(Piece));
    std::memset(static_cast<void*>(workspace.data()), 0xFF, workspace.size() * sizeof(Piece));
  }
  ~DirtyCtx() {
    wait_for_kernels();
    const char* const end = reinterpret_cast<const char*>(workspace.data() + workspace.size());
    EXPECT_EQ(std::count(end - kBehind, end, char(0xFF)), kBehind) << "a kernel wrote beyond the workspace";
  }
};

class OpenMpThreads {  // sets the number of threads as long as it exists
 public:
  explicit OpenMpThreads(int n) { omp_set_num_threads(n); }
  ~OpenMpThreads() { omp_set_num_threads(before_); }
  OpenMpThreads(const OpenMpThreads&) = delete;
  OpenMpThreads& operator=(const OpenMpThreads&) = delete;

 private:
  int before_ = omp_get_max_threads();
};

// The finished result of each output, as soon as a call has written it without rounding; every later call
// must be bitwise consistent with it.
using Results = std::vector<std::vector<double>>;

inline void expect_way(const TestedCall& k, const Way& way, TestCtx& ctx, Results& results) {
  std::vector<Buffer> buffers;
  std::vector<Out> outs;
  std::vector<std::vector<double>> old;
  for (size_t i = 0; i < way.size(); ++i) {
    const Expected& e = k.outputs[i];
    const int64_t n = int64_t(e.value.size());
    const DType t = e.types[size_t(std::max(way[i] - 1, 0) / 2)];
    double squares = 0;
    for (const double v : e.value) squares += std::isfinite(v) && v != kNotWritten ? v * v : 0;
    const double size = squares > 0 ? std::sqrt(squares / double(n)) : 1;  // old values are as large as r
    const Write w = way[i] > 0 && way[i] % 2 == 0 ? Write::Add : Write::Set;
    buffers.push_back(w == Write::Add ? Buffer::random(t, n, 50 + i, size)
                                      : Buffer(t, std::vector<double>(n, NAN)));
    old.push_back(buffers.back().values());
    outs.push_back(way[i] == 0 ? Out{nullptr, t, w} : buffers.back().out(w));
  }
  ctx.poison_scratch();
  k.call(ctx, outs);
  EXPECT_TRUE(ctx.kept_to_its_scratch()) << k.op << " writes more scratch than cost.h says";
  for (size_t i = 0; i < way.size(); ++i) {
    if (way[i] == 0) continue;
    Expected e = k.outputs[i];
    const bool other_bits = outs[i].w == Write::Add && !k.adds_same_bits;
    for (size_t j = 0; other_bits && j < e.error.size(); ++j)  // the library rounds the sum anywhere
      e.error[j] += std::abs(old[i][j]) + std::abs(e.value[j]);
    const std::vector<double> got = buffers[i].values();
    ASSERT_NO_FATAL_FAILURE(expect_written(k.op, e, outs[i].t, outs[i].w, old[i], got, other_bits));
    if (other_bits) continue;
    if (results[i].empty() && outs[i].t == stat(e.types.front()) && outs[i].w == Write::Set) {
      results[i] = got;
      for (size_t j = 0; j < got.size(); ++j)
        if (e.value[j] == kNotWritten) results[i][j] = kNotWritten;
    }
    if (results[i].empty() || stat(outs[i].t) != stat(e.types.front())) continue;
    ASSERT_NO_FATAL_FAILURE(expect_written(k.op + " compared with an earlier call", {e.name, {}, results[i]},
                                           outs[i].t, outs[i].w, old[i], got));
  }
}

// On cpu with one thread and with three.
inline void expect_contract(const TestedCall& k, const std::vector<Way>& ways, TestCtx& ctx,
                            const std::vector<int>& of_threads = {1, 3}) {
  Results results(k.outputs.size());
  const size_t runs = turn.table == &cpu_backend() ? of_threads.size() : 1;  // a GPU has no such threads
  for (size_t i = 0; i < runs; ++i) {
    const OpenMpThreads as_many(of_threads[i]);
    for (const Way& way : ways) ASSERT_NO_FATAL_FAILURE(expect_way(k, way, ctx, results));
  }
}
inline void expect_contract(const TestedCall& k, const std::vector<Way>& ways) {
  TestCtx ctx(k.cost);
  expect_contract(k, ways, ctx);
}
inline void expect_contract(const TestedCall& k) { expect_contract(k, some_ways(k.outputs)); }

// y = f(a, b) per element, at sizes just below and above the elements of a GPU's block, and those that get a
// second thread; some of a are far from 0. Allowed: `ulps` of fp32 on a value of size |f| + 1; 0: exact.
struct Elementwise {
  const char* op;
  std::function<void(const Ctx&, int64_t, CBuf, CBuf, Out)> kernel;
  double (*f)(double a, double b);
  double ulps = 0;
};
inline void expect_elementwise(const Elementwise& e) {
  for (const DType T : float_types())
    for (const int64_t n : {0, 1, 7, 255, 257, 2049, 40'003}) {
      if (n > 10'000 && turn.table != &cpu_backend()) continue;
      std::vector<double> some = Buffer::random(T, n, 1, 2).values();
      if (n > 7) some[1] = 0, some[2] = 30, some[3] = -30, some[4] = 100, some[5] = -100, some[6] = 1e-3;
      const Buffer a(T, some), b = Buffer::random(T, n, 2);
      const std::vector<double> va = a.values(), vb = b.values();
      Expected y{"y", {T}, std::vector<double>(n)};
      for (int64_t i = 0; i < n; ++i) y.value[i] = e.f(va[i], vb[i]);
      for (int64_t i = 0; e.ulps > 0 && i < n; ++i)
        y.error.push_back(e.ulps * (2 * std::abs(y.value[i]) + std::abs(vb[i]) + 1));
      const TestedCall call{e.op, {y}, [&](const Ctx& c, const std::vector<Out>& out) {
                              e.kernel(c, n, a.in(), b.in(), out[0]);
                            }};
      expect_contract(call, all_ways(call.outputs));
    }
}

// Shapes just below and above a warp, a partition (32) and a GPU's block (64, 256 columns), and on cpu also a
// shape that is large enough for a second thread.
inline std::vector<RowShape> row_shapes() {
  std::vector<RowShape> shapes{{0, 3}, {1, 1}, {7, 1}, {1, 257}, {32, 33}, {33, 7}, {67, 255}};
  if (turn.table == &cpu_backend()) shapes.push_back({137, 257});
  return shapes;
}

}  // namespace gradus
