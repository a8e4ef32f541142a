// Exercise 03.6: the kernels of lessons/03_transformer/faster.cpp, compared with the given CPU kernels. The
// reference for correct results is the given kernel in fp64.
#include "lessons/03_transformer/faster.h"

#include <cmath>
#include <cstring>

#include "kernels/check.h"
#include "tests/course/faster.h"

namespace gradus::faster {

struct Entry {  // an entry of the kernel table that can be judged
  std::string op;
  bool replaced;
  int64_t inputs;  // how many, each of rows x cols numbers
  Kernel (*of)(const Backend&);
  double (*roundings)(RowShape);  // for numbers of absolute value <= 1, as in the kernel tests
};

static StepScalars scalars{.step = 3};

static Kernel softmax_fwd(const Backend& table) {
  return [f = table.softmax_fwd](RowShape s, const std::vector<CBuf>& in, Out out) { f({}, s, in[0], out); };
}
static Kernel gelu_fwd(const Backend& table) {
  return [f = table.gelu_fwd](RowShape s, const std::vector<CBuf>& in, Out out) {
    f({}, s.rows * s.cols, in[0], out);
  };
}
static Kernel softmax_bwd(const Backend& table) {
  return [f = table.softmax_bwd](RowShape s, const std::vector<CBuf>& in, Out out) {
    f({}, s, in[0], in[1], out);
  };
}
static Kernel dropout(const Backend& table) {
  return [f = table.dropout](RowShape s, const std::vector<CBuf>& in, Out out) {
    f({.scalars = &scalars}, s, in[0], out, 0.25f, {.seed = 7, .ordinal = 2});
  };
}

static std::vector<Entry> entries(const Backend& a, const Backend& b) {
  return {{"softmax_fwd", a.softmax_fwd != b.softmax_fwd, 1, softmax_fwd,
           [](RowShape s) { return double(s.cols) + 32; }},
          {"softmax_bwd", a.softmax_bwd != b.softmax_bwd, 2, softmax_bwd,
           [](RowShape s) { return 100 * (double(s.cols) + 8); }},
          {"gelu_fwd", a.gelu_fwd != b.gelu_fwd, 1, gelu_fwd, [](RowShape) { return 20.0; }},
          {"dropout", a.dropout != b.dropout, 1, dropout, [](RowShape) { return 8.0; }}};
}

static double epsilon_of(DType t) { return t == DType::F64 ? 0x1p-53 : t == DType::F32 ? 0x1p-24 : 0x1p-8; }

// The kernel's result in fp64.
static std::vector<double> in_fp64(const Kernel& kernel, RowShape s,
                                   const std::vector<std::vector<double>>& in) {
  std::vector<CBuf> buffers;
  for (const std::vector<double>& values : in) buffers.push_back({values.data(), DType::F64});
  std::vector<double> result(size_t(s.rows * s.cols));
  kernel(s, buffers, {result.data(), DType::F64, Write::Set});
  return result;
}

static std::vector<Contest> contests() {
  const Backend &given = cpu_backend(), yours = my_backend();
  const auto *a = reinterpret_cast<const void*const*>(&given),
             *b = reinterpret_cast<const void*const*>(&yours);
  int64_t other = 0;  // all replaced entries, also those that cannot be judged
  for (size_t i = 0; i < sizeof(Backend) / sizeof(void*); ++i) other += a[i] != b[i];
  std::vector<Contest> list;
  for (const Entry& e : entries(given, yours)) {
    if (!e.replaced) continue;
    const Kernel own = e.of(given);
    list.push_back({"03.6",
                    e.op,
                    own,
                    e.of(yours),
                    [n = e.inputs](RowShape s) { return std::vector<int64_t>(size_t(n), s.rows * s.cols); },
                    5,
                    [=](RowShape s, const auto& in) { return in_fp64(own, s, in); },
                    [r = e.roundings](RowShape s, DType t, double expected) {
                      return 2 * epsilon_of(t) * std::abs(expected) +
                             r(s) * epsilon_of(t == DType::F64 ? t : DType::F32);
                    },
                    {{1, 1}, {7, 1}, {1, 7}, {3, 255}, {257, 5}, {2, 1000}, {1, 4099}},
                    {4096, 1024},
                    {DType::F32, DType::BF16, DType::F64},
                    true});
  }
  check(other == int64_t(list.size()), "only softmax_fwd, softmax_bwd, gelu_fwd and dropout can be judged; ",
        other - int64_t(list.size()), " other entries of the table were replaced");
  return list;
}

}  // namespace gradus::faster

int main(int argc, char** argv) {
  return gradus::faster::run(argc, argv, {"03.6"}, gradus::faster::contests);
}
