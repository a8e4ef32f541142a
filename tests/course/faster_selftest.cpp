// The self-test of faster: a right kernel is accepted; each kind of wrong kernel is rejected, with its
// reason.
#include <cmath>
#include <iostream>
#include <sstream>

#include "tests/course/faster.h"

namespace gradus::faster {

// y = 2 x, with the error that `fault` selects.
enum class Fault {
  None,
  Everywhere,
  Ragged,
  Tail,
  WritesBehind,
  WritesBefore,
  ChangesInput,
  IgnoresAdd,
  OnlyOnce,
  Stale,
  WhenTimed,
  OnlyFp32
};
static Fault fault;
static int calls;
static std::vector<float> first_result;

template <class T>
static void twice_of(RowShape s, const T* x, T* y, Write w) {
  const int64_t n = s.rows * s.cols;
  for (int64_t i = 0; i < n; ++i)
    y[i] = w == Write::Set || fault == Fault::IgnoresAdd ? 2 * x[i] : y[i] + 2 * x[i];
  if (fault == Fault::Everywhere) y[n / 2] *= T(1.001);
  if (fault == Fault::Ragged && n % 8) y[n - 1] = 0;
  if (fault == Fault::Tail && n > 1) y[n - 1] = y[n - 2];
  if (fault == Fault::WritesBehind) y[n] = 0;
  if (fault == Fault::WritesBefore) y[-1] = 0;
  if (fault == Fault::ChangesInput) const_cast<T*>(x)[0] += T(1);
  if (fault == Fault::OnlyFp32 && sizeof(T) == 8) y[0] = 1;
}

static void faulty(RowShape s, const std::vector<CBuf>& in, Out out) {
  ++calls;
  const bool timed = s.rows == 64;
  if (timed && fault == Fault::WhenTimed) return;
  if (timed && fault == Fault::OnlyOnce && calls % 2) return;
  if (out.t == DType::F64) return twice_of(s, in[0].as<double>(), out.as<double>(), out.w);
  twice_of(s, in[0].as<float>(), out.as<float>(), out.w);
  if (!timed || fault != Fault::Stale) return;
  const int64_t n = s.rows * s.cols;
  if (first_result.empty()) first_result.assign(out.as<float>(), out.as<float>() + n);
  std::copy(first_result.begin(), first_result.end(), out.as<float>());
}

static std::vector<Contest> contests() {
  const Kernel given = [](RowShape s, const std::vector<CBuf>& in, Out out) {
    for (int64_t i = 0; i < s.rows * s.cols; ++i) out.as<float>()[i] = 2 * in[0].as<float>()[i];
  };
  const auto expected = [](RowShape, const std::vector<std::vector<double>>& in) {
    std::vector<double> y = in[0];
    for (double& v : y) v *= 2;
    return y;
  };
  return {{"00.1",
           "twice",
           given,
           faulty,
           [](RowShape s) { return std::vector<int64_t>{s.rows * s.cols}; },
           1,
           expected,
           [](RowShape, DType, double value) { return 0x1p-23 * (std::abs(value) + 1); },
           {{1, 1}, {7, 1}, {3, 255}, {257, 5}},
           {64, 64},
           {DType::F32, DType::F64},
           true}};
}

static bool says(Fault f, int code, const std::string& text) {
  fault = f, calls = 0, first_result.clear();
  std::ostringstream said;
  std::streambuf* before = std::cout.rdbuf(said.rdbuf());
  char name[] = "faster_selftest";
  char* argv[] = {name, nullptr};
  const int got = run(1, argv, {"00.1"}, contests);
  std::cout.rdbuf(before);
  const bool good = got == code && said.str().find(text) != std::string::npos;
  if (!good)
    std::cout << "self-test of faster: exit code " << got << "; expected: " << text << "\n" << said.str();
  return good;
}

static int selftest() {
  struct Case {
    Fault fault;
    int code;
    std::string text;
  };
  bool good = true;
  for (const Case& c : std::vector<Case>{{Fault::None, 0, "faster 00.1: right; "},
                                         {Fault::Everywhere, 1, "faster 00.1: wrong: twice, 1 x 1, fp32"},
                                         {Fault::Ragged, 1, "expected"},
                                         {Fault::Tail, 1, "element 6"},
                                         {Fault::WritesBehind, 1, "before or behind"},
                                         {Fault::WritesBefore, 1, "before or behind"},
                                         {Fault::ChangesInput, 1, "changes an input"},
                                         {Fault::IgnoresAdd, 1, "Write::Add"},
                                         {Fault::OnlyFp32, 1, "fp64"},
                                         {Fault::WhenTimed, 1, "got nan"},
                                         {Fault::OnlyOnce, 1, "got nan"},
                                         {Fault::Stale, 1, "in timed run 2"}})
    good = says(c.fault, c.code, c.text) && good;
  if (good) std::cout << "self-test of faster: everything held\n";
  return good ? 0 : 1;
}

}  // namespace gradus::faster

int main() { return gradus::faster::selftest(); }
