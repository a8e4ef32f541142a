// The bytes that emu counts: every load() and store() of every kernel, whoever runs it.
#include <gtest/gtest.h>
#include <omp.h>

#include "kernels/emu/order.h"
#include "kernels/emu/traffic.h"
#include "src/ops/ops.h"

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

// Write::Add reads what is there.
TEST(L15_EmuBytes, OfAnAddedOutputAreLoadedToo) {
  const Context context("emu");
  const Tensor a = zeros(300, DType::F32), b = zeros(300, DType::F32);
  Tensor y = zeros(300, DType::F32);
  const auto call = [&](Out out) { be(a).add(ctx(a, cost::add(300, DType::F32)), 300, a.in(), b.in(), out); };
  EXPECT_EQ(count([&] { call(y.set()); }), (Counted{2400, 1200}));
  EXPECT_EQ(count([&] { call(y.add()); }), (Counted{3600, 1200}));
}

TEST(L15_EmuBytes, OtherDevicesCountNone) {
  const Context context("cpu");
  const Tensor a = zeros(300, DType::F32);
  EXPECT_EQ(count([&] { add(a, a); }), (Counted{0, 0}));
}

}  // namespace
}  // namespace gradus
