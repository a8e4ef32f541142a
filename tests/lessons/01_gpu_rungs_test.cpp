// Lesson 01's GPU rungs: correct at sizes that no tile divides, bitwise equal results in every order of
// threads, and the predicted memory traffic. Also tests the counter of the traffic.
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>

#include "kernels/cuda/counted.h"
#include "lessons/01_gemm/gpu_rungs.h"
#include "src/core/rng.h"
#include "src/tensor/context.h"
#include "src/tensor/tensor.h"
#include "tests/mistakes.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

using emu::Order;
constexpr Order kOrders[] = {Order::Forward, Order::Reverse, Order::Shuffled};

struct Ladder {
  std::string device;
  std::vector<GpuRung> rungs;
};
std::vector<Ladder> ladders() {
  std::vector<Ladder> list = {{"emu", emu::gpu_rungs()}};
#ifdef GRADUS_CUDA
  if (Device("auto").name() == std::string("cuda")) list.push_back({"cuda", cuda::gpu_rungs()});
#endif
  return list;
}

std::vector<float> random(int64_t n, uint64_t stream) {
  Rng rng(3, stream);
  std::vector<float> values(n);
  for (float& x : values) x = float(rng.normal());
  return values;
}

// A, B and C on a device, each `offset` elements behind an aligned address. C is filled with NaN.
struct Operands {
  Operands(const std::string& on, const GemmSize& s, int64_t offset = 0)
      : size(s),
        offset(offset),
        context(on),
        a(on_device(random(s.M * s.K, 1))),
        b(on_device(random(s.K * s.N, 2))),
        c(on_device(std::vector<float>(s.M * s.N, NAN))) {}
  Tensor on_device(std::vector<float> values) {
    values.insert(values.begin(), offset, NAN);
    return from_host(context.device, values, {int64_t(values.size())}, DType::F32, Kind::Data, "operand");
  }
  std::vector<float> multiply(const GpuRung& rung) {
    rung.multiply(context.device.ctx(), size, a.in().as<float>() + offset, b.in().as<float>() + offset,
                  c.set().as<float>() + offset);
    std::vector<float> product = to_host<float>(c);
    product.erase(product.begin(), product.begin() + offset);
    return product;
  }

  GemmSize size;
  int64_t offset;
  Context context;
  Tensor a, b, c;
};

// The element of C with the largest error / allowed error. A sum of K products, added in any order, with each
// product rounded or not, has an error of at most K eps times the sum of their absolute values.
struct Worst {
  double ratio = 0;
  std::string element;
};
Worst worst_of(const GemmSize& s, const std::vector<float>& c) {
  const std::vector<float> a = random(s.M * s.K, 1), b = random(s.K * s.N, 2);
  Worst worst;
  for (int64_t i = 0; i < s.M; ++i)
    for (int64_t j = 0; j < s.N; ++j) {
      double sum = 0, sizes = 0;
      for (int64_t k = 0; k < s.K; ++k) {
        sum += double(a[i * s.K + k]) * b[k * s.N + j];
        sizes += std::abs(double(a[i * s.K + k]) * b[k * s.N + j]);
      }
      const float got = c[i * s.N + j];
      if (double(got) == sum) continue;  // also if K is 0
      const double ratio = std::abs(got - sum) / (double(s.K) * 0x1p-24 * sizes);
      if (std::isnan(got) || ratio > worst.ratio)
        worst = {std::isnan(got) ? INFINITY : ratio,
                 "element (" + std::to_string(i) + ", " + std::to_string(j) + "): expected " +
                     std::to_string(sum) + ", got " + std::to_string(got)};
    }
  return worst;
}

class L01_GpuRungs : public testing::Test {
 protected:
  ~L01_GpuRungs() override { emu::set_order(Order::Forward); }

  static void expect_right(size_t rung) {
    for (const Ladder& ladder : ladders())
      for (const GemmSize& s : {GemmSize{1, 1, 1},
                                {7, 5, 3},
                                {33, 129, 65},
                                {130, 257, 17},
                                {132, 136, 20},
                                {4, 132, 4},
                                {128, 128, 32},
                                {5, 6, 0},
                                {0, 3, 4}})
        for (const int64_t offset : {0, 1}) expect_right(ladder.device, ladder.rungs[rung], s, offset);
  }
  static void expect_right(const std::string& on, const GpuRung& rung, const GemmSize& s, int64_t offset) {
    const std::string where = rung.name + " on " + on + ", M = " + std::to_string(s.M) +
                              ", N = " + std::to_string(s.N) + ", K = " + std::to_string(s.K);
    std::vector<float> first;
    for (const Order order : kOrders) {
      emu::set_order(order);
      const std::vector<float> c = Operands(on, s, offset).multiply(rung);
      if (order == Order::Forward)
        first = c;
      else
        ASSERT_TRUE(c == first) << where
                                << usual_mistake({{c != first,
                                                   "a different order of threads gives a different "
                                                   "result: a barrier is missing"}});
    }
    ASSERT_EQ(int64_t(first.size()), s.M * s.N);
    const Worst worst = worst_of(s, first);
    ASSERT_LE(worst.ratio, 1) << where << ", " << worst.element;
  }

  static void expect_predicted_traffic(size_t index) {
    const GpuRung rung = emu::gpu_rungs()[index];
    const int threads = omp_get_max_threads();
    for (const GemmSize& s : {GemmSize{128, 128, 128}, {256, 128, 96}, {128, 384, 32}}) {
      Operands operands("emu", s);
      const emu::Traffic expected = rung.predicted(s);
      for (const Order order : kOrders) {
        emu::set_order(order);
        omp_set_num_threads(order == Order::Forward ? 1 : threads);
        emu::reset_traffic();
        operands.multiply(rung);
        const emu::Traffic t = emu::traffic();
        EXPECT_TRUE(t == expected) << rung.name << ", M = " << s.M << ", N = " << s.N << ", K = " << s.K
                                   << ": loads " << t.loads.requests << " requests, " << t.loads.sectors
                                   << " sectors; expected " << expected.loads.requests << ", "
                                   << expected.loads.sectors << "; stores " << t.stores.sectors
                                   << ", expected " << expected.stores.sectors << " sectors; shared loads "
                                   << t.shared_loads << ", expected " << expected.shared_loads
                                   << usual_mistake(
                                          {{t.shared_loads > expected.shared_loads,
                                            "each product reads shared memory; a number that was read "
                                            "once can stay in registers"},
                                           {t.loads.requests > expected.loads.requests,
                                            "global memory is read again for numbers that are in a tile"}});
      }
      omp_set_num_threads(threads);
    }
  }
};

TEST_F(L01_GpuRungs, GlobalMemory) { expect_right(0); }
TEST_F(L01_GpuRungs, SharedTile) {
  RecordProperty("exercise", "01.6");
  expect_right(1);
}
TEST_F(L01_GpuRungs, RegisterTile) {
  RecordProperty("exercise", "01.7");
  expect_right(2);
}
TEST_F(L01_GpuRungs, Vectors) { expect_right(3); }

// The allowed error is small enough to find a wrong product.
TEST_F(L01_GpuRungs, AnErrorOfATenThousandthIsSeen) {
  const GemmSize s{7, 5, 33};
  const GpuRung rung = emu::gpu_rungs()[0];
  std::vector<float> c = Operands("emu", s).multiply(rung);
  c[17] *= 1.0001f;
  EXPECT_GT(worst_of(s, c).ratio, 1) << "a product with an error of 1e-4 passes";
}

TEST_F(L01_GpuRungs, GlobalMemoryMovesWhatIsPredicted) { expect_predicted_traffic(0); }
TEST_F(L01_GpuRungs, SharedTileMovesWhatIsPredicted) {
  RecordProperty("exercise", "01.6");
  expect_predicted_traffic(1);
}
TEST_F(L01_GpuRungs, RegisterTileMovesWhatIsPredicted) {
  RecordProperty("exercise", "01.7");
  expect_predicted_traffic(2);
}
TEST_F(L01_GpuRungs, VectorsMoveWhatIsPredicted) { expect_predicted_traffic(3); }

TEST_F(L01_GpuRungs, IntensityIsAQuarterOfTheTile) {  // 2 n^3 FLOPs per 2 n^3 / t numbers; C is left out
  const GemmSize s{4096, 4096, 4096};
  const std::vector<GpuRung> ladder = emu::gpu_rungs();
  const auto flops_per_byte = [&](int rung) {
    return s.flops() / double(ladder[rung].predicted(s).loads.sectors * emu::Traffic::kSector);
  };
  EXPECT_DOUBLE_EQ(flops_per_byte(0), 0.4);
  EXPECT_DOUBLE_EQ(flops_per_byte(1), 32 / 4.0);
  EXPECT_DOUBLE_EQ(flops_per_byte(2), 128 / 4.0);
  EXPECT_DOUBLE_EQ(flops_per_byte(3), 128 / 4.0);
}

// ---- the counter --------------------------------------------------------------------------------------

class L01_Traffic : public L01_GpuRungs {
 protected:
  // The traffic of a launch of blocks of `threads`, which must be the same in every order of threads.
  template <class Kernel>
  emu::Traffic traffic_of(dim3 grid, dim3 threads, const Kernel& kernel) {
    std::vector<emu::Traffic> all;
    for (const Order order : kOrders) {
      emu::set_order(order);
      emu::reset_traffic();
      emu::launch(emu::Launch{"traffic", grid, threads, 0}, [&] { kernel(emu::Global(numbers)); });
      all.push_back(emu::traffic());
    }
    EXPECT_EQ(all[0], all[1]);
    EXPECT_EQ(all[0], all[2]);
    return all[0];
  }
  alignas(64) float numbers[4096] = {};
};

TEST_F(L01_Traffic, SectorsAreThoseThatAWarpTouches) {
  const auto loads = [&](auto index) {
    return traffic_of(1, 32, [&](emu::Global x) { x.load(index(threadIdx.x)); }).loads;
  };
  const auto expect = [](emu::Requests got, int64_t sectors) { EXPECT_EQ(got, (emu::Requests{1, sectors})); };
  expect(loads([](int64_t t) { return t; }), 4);                      // neighbours
  expect(loads([](int64_t t) { return 31 - t; }), 4);                 // in any order
  expect(loads([](int64_t t) { return t + 1; }), 5);                  // across a boundary
  expect(loads([](int64_t) { return 7; }), 1);                        // one element
  expect(loads([](int64_t t) { return 2 * t; }), 8);                  // every second one
  expect(loads([](int64_t t) { return 32 * t; }), 32);                // a column
  expect(loads([](int64_t t) { return t / 16 * 512 + t % 16; }), 4);  // two rows
  EXPECT_EQ(traffic_of(1, 32, [](emu::Global x) { x.load4(4 * threadIdx.x); }).loads, (emu::Requests{1, 16}));
}

TEST_F(L01_Traffic, EachWarpOfEachBlockMakesItsOwnRequests) {
  const auto copy = [](emu::Global x) {  // 80 threads in each of 3 x 2 blocks: two and a half warps
    const int64_t t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    x.store(512 + t, x.load(t));
  };
  for (const dim3 block : {dim3(80), dim3(40, 2), dim3(8, 2, 5), dim3(2, 1, 40)}) {
    const emu::Traffic t = traffic_of(dim3(3, 2), block, copy);
    EXPECT_EQ(t.loads, (emu::Requests{6 * 3, 6 * 10}));
    EXPECT_EQ(t.stores, (emu::Requests{6 * 3, 6 * 10}));
    EXPECT_EQ(t.bytes(), 2 * 6 * 80 * 4);
  }
}

TEST_F(L01_Traffic, LanesThatAreNotWantedMoveNothing) {
  const auto some = [](int64_t lanes) {
    return [lanes](emu::Global x) {
      x.load(threadIdx.x, threadIdx.x < lanes);
      x.load(threadIdx.x);
    };
  };
  EXPECT_EQ(traffic_of(1, 32, some(9)).loads, (emu::Requests{2, 2 + 4}));
  EXPECT_EQ(traffic_of(1, 32, some(0)).loads, (emu::Requests{1, 4}));
  const auto returns = [](emu::Global x) {
    if (threadIdx.x % 2) return;
    for (int k = 0; k < 3; ++k) x.load(32 * k + threadIdx.x);
  };
  EXPECT_EQ(traffic_of(1, 32, returns).loads, (emu::Requests{3, 12}));
}

TEST_F(L01_Traffic, BarriersChangeNothing) {
  const auto with_barriers = [](emu::Global x) {
    for (int k = 0; k < 4; ++k) {
      x.load(64 * k + threadIdx.x);
      __syncthreads();
    }
  };
  EXPECT_EQ(traffic_of(5, 64, with_barriers).loads, (emu::Requests{5 * 4 * 2, 5 * 4 * 8}));
}

TEST_F(L01_Traffic, SharedLoadsAreCountedByThread) {
  const auto reads = [](emu::Global) {
    alignas(16) float tile[8] = {};
    emu::from_shared(tile[1]);
    emu::from_shared4(tile[4]);
  };
  EXPECT_EQ(traffic_of(3, 40, reads), (emu::Traffic{{}, {}, 3 * 40 * 2}));
}

TEST_F(L01_Traffic, LanesAtDifferentPlacesAreNamed) {
  for (const bool wanted : {true, false})
    expect_refused("lanes of one warp", [&] {
      traffic_of(1, 32, [wanted](emu::Global x) {
        if (threadIdx.x == 5) x.load(0, wanted);
        x.load(1);
      });
    });
}

}  // namespace
}  // namespace gradus
