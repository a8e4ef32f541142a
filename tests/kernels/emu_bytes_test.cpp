// The bytes that emu counts: every load() and store() of every kernel.
#include <gtest/gtest.h>
#include <omp.h>

#include "kernels/emu/traffic.h"
#include "src/ops/ops.h"
#include "tests/kernels/emu_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

struct Counted {
  int64_t loaded, stored;
  bool operator==(const Counted&) const = default;
};
template <class F>
Counted count(F f) {
  emu::reset_traffic();
  f();
  const emu::Traffic t = emu::traffic();
  return {t.loaded, t.stored};
}
Tensor zeros(int64_t n, DType t) {
  return from_host(current().device, std::vector<double>(size_t(n)), {n}, t, Kind::Data, "x");
}

TEST(L15_EmuBytes, OfASumAreTwoNumbersLoadedAndOneStored) {
  const int before = omp_get_max_threads();
  const Context context("emu");
  for (const int threads : {1, 3})
    for (const emu::Order order : {emu::Order::Forward, emu::Order::Reverse, emu::Order::Shuffled}) {
      omp_set_num_threads(threads), emu::set_order(order);
      for (const auto& [t, bytes] : {std::pair(DType::F32, 4), {DType::BF16, 2}})
        for (const int64_t n : {1, 255, 257, 5000}) {
          const Tensor a = zeros(n, t), b = zeros(n, t);
          const Counted once = count([&] { add(a, b); });
          EXPECT_EQ(once, (Counted{2 * n * bytes, n * bytes})) << n << " numbers, " << threads << " threads";
          EXPECT_EQ(count([&] { add(a, b), add(a, b); }), (Counted{4 * n * bytes, 2 * n * bytes}));
        }
    }
  omp_set_num_threads(before), emu::set_order(emu::Order::Forward);
  emu::reset_traffic();
  EXPECT_EQ(emu::traffic(), emu::Traffic()) << "nothing has run since";
}

// Write::Add reads the old output.
TEST(L15_EmuBytes, OfAnAddedOutputAreLoadedToo) {
  const Context context("emu");
  const Tensor a = zeros(300, DType::F32), b = zeros(300, DType::F32);
  Tensor y = zeros(300, DType::F32);
  const auto call = [&](Out out) { be(a).add(ctx(a, cost::add(300, DType::F32)), 300, a.in(), b.in(), out); };
  EXPECT_EQ(count([&] { call(y.set()); }), (Counted{2400, 1200}));
  EXPECT_EQ(count([&] { call(y.add()); }), (Counted{3600, 1200}));
}

// fill loads nothing; a cast loads and stores numbers of different sizes. Counts add up until the next reset.
TEST(L15_EmuBytes, OfDifferentKernelsAreThoseOfTheirFormulasAndAddUp) {
  const Context context("emu");
  const int64_t n = 1025;
  const Tensor a = zeros(n, DType::BF16);
  Tensor y = zeros(n, DType::BF16), wide = zeros(n, DType::F32);
  const auto fill = [&] { be(a).fill(ctx(a, cost::fill(n, DType::BF16)), n, y.set(), 0.5); };
  const auto cast = [&](Out out) {
    be(a).cast(ctx(a, cost::cast(n, DType::BF16, DType::F32)), n, a.in(), out);
  };
  const auto nothing = [&] {
    be(a).add(ctx(a, cost::add(0, DType::BF16)), 0, a.in(), a.in(), y.set());
    be(a).add(ctx(a, cost::add(n, DType::BF16)), n, a.in(), a.in(), {nullptr, DType::BF16, Write::Set});
  };
  EXPECT_EQ(count(fill), (Counted{0, 2 * n}));
  EXPECT_EQ(count([&] { cast(wide.set()); }), (Counted{2 * n, 4 * n}));
  EXPECT_EQ(count([&] { cast(wide.add()); }), (Counted{6 * n, 4 * n}));
  EXPECT_EQ(count(nothing), (Counted{0, 0}));
  EXPECT_EQ(count([&] { fill(), cast(wide.add()), nothing(), cast(wide.set()); }), (Counted{8 * n, 10 * n}));
}

// The counts of a launch that threw do not reach the next launch.
TEST(L15_EmuBytes, OfALaunchThatThrewAreGoneAfterAReset) {
  const Context context("emu");
  const Tensor a = zeros(300, DType::F32);
  expect_refused("enough", [] {
    launch("throws", 6, 32, 0, [] {
      emu::count_load(1000), emu::count_store(100);
      if (threadIdx.x == 20) fail("enough");
    });
  });
  EXPECT_EQ(count([&] { add(a, a); }), (Counted{2400, 1200}));
}

TEST(L15_EmuBytes, OtherDevicesCountNone) {
  const Context context("cpu");
  const Tensor a = zeros(300, DType::F32);
  EXPECT_EQ(count([&] { add(a, a); }), (Counted{0, 0}));
}

}  // namespace
}  // namespace gradus
