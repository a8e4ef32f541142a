// Exercise 01.4: the rungs of lessons/01_gemm/faster.cpp beside the given ones.
#include "lessons/01_gemm/rungs.h"
#include "tests/course/faster.h"

namespace gradus::faster {

static Kernel kernel(const Rung& rung) {
  return [=](RowShape s, const std::vector<CBuf>& in, Out out) {
    rung.multiply(s.rows, in[0].as<float>(), in[1].as<float>(), out.as<float>());
  };
}

static std::vector<double> product(RowShape s, const std::vector<std::vector<double>>& in) {
  const auto n = size_t(s.rows);
  std::vector<double> c(n * n, 0.0);
  for (size_t i = 0; i < n; ++i)
    for (size_t k = 0; k < n; ++k)
      for (size_t j = 0; j < n; ++j) c[i * n + j] += in[0][i * n + k] * in[1][k * n + j];
  return c;
}

// Of n products of numbers up to 1, summed in any order: n eps of the sum of their sizes (Higham 2002,
// eq. 3.5).
static double allowed(RowShape s, DType, double) { return double(s.rows) * double(s.rows) * 0x1p-24; }

static std::vector<Contest> contests() {
  std::vector<Contest> list;
  const std::vector<Rung> given = rungs(), yours = my_rungs();
  for (size_t i = 0; i < given.size() && i < yours.size(); ++i)
    if (yours[i].multiply != given[i].multiply)
      list.push_back({"01.4",
                      "rung " + given[i].name,
                      kernel(given[i]),
                      kernel(yours[i]),
                      [](RowShape s) { return std::vector<int64_t>(2, s.rows * s.rows); },
                      1,
                      product,
                      allowed,
                      {{1, 1}, {7, 7}, {64, 64}, {255, 255}, {257, 257}},
                      {768, 768},
                      {DType::F32},
                      false});
  return list;
}

}  // namespace gradus::faster

int main(int argc, char** argv) { return gradus::faster::run(argc, argv, "01.4", gradus::faster::contests); }
