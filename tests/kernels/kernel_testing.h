// Shared by the kernel tests: random buffers of any dtype at any alignment, and the comparison with an fp64
// reference under a bound that is derived, not chosen.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/cost.h"
#include "kernels/emu/order.h"
#include "src/core/rng.h"
#include "src/memory/cuda.h"

#ifdef GRADUS_CUDA
#include <cuda_runtime_api.h>
#endif

namespace gradus {

// Buffers begin one element past alignment, so that kernels get unaligned pointers. Aligned buffers are for
// libraries that choose different code for them, such as cuBLAS.
enum class Alignment : uint8_t { None, Full };

// The kernels under test run once for each Turn: a device and, on emu, the order in which GPU threads take
// turns. If results in different orders are not bitwise equal, a barrier is missing; if those of two runs on
// a GPU are not, a kernel is not deterministic.
struct Turn {
  const char* name;
  const Backend* table;
  emu::Order order = emu::Order::Forward;
  Alignment alignment = Alignment::None;
};
inline std::ostream& operator<<(std::ostream& out, const Turn& t) { return out << t.name; }
inline std::vector<Turn> turns() {
  std::vector<Turn> turns{{"cpu", &cpu_backend()},
                          {"emu", &emu_backend()},
                          {"emu_reverse", &emu_backend(), emu::Order::Reverse},
                          {"emu_shuffled", &emu_backend(), emu::Order::Shuffled}};
#ifdef GRADUS_CUDA
  if (cuda_problem().empty())
    for (const char* name : {"cuda", "cuda_again", "cuda_aligned", "cuda_aligned_again"})
      turns.push_back({name, &cuda_backend(), emu::Order::Forward,
                       std::string_view(name).find("aligned") == std::string_view::npos ? Alignment::None
                                                                                        : Alignment::Full});
#endif
  return turns;
}

inline Turn turn{"cpu", &cpu_backend()};
inline const Backend& table() { return *turn.table; }
inline bool on_cuda() { return std::string_view(table().name) == "cuda"; }

// Memory that both the host and the kernels under test can access: with a GPU it is "managed" memory, which
// moves between the two. The host must wait before it reads the results of kernels.
inline void wait_for_kernels() {
#ifdef GRADUS_CUDA
  if (!on_cuda()) return;
  const cudaError_t e = cudaDeviceSynchronize();
  check(e == cudaSuccess, "a kernel under test failed: ", cudaGetErrorString(e));
#endif
}
template <class T>
struct SharedMemory {  // an allocator for std::vector
  using value_type = T;
  bool managed = on_cuda();
  SharedMemory() = default;
  template <class U>
  explicit SharedMemory(const SharedMemory<U>& other) : managed(other.managed) {}
  bool operator==(const SharedMemory& other) const { return managed == other.managed; }
  T* allocate(size_t n) {
    void* p = nullptr;
#ifdef GRADUS_CUDA
    if (managed) {
      const cudaError_t e = cudaMallocManaged(&p, n * sizeof(T));
      check(e == cudaSuccess, "no managed memory for a test: ", cudaGetErrorString(e));
      return static_cast<T*>(p);
    }
#endif
    p = ::operator new(n * sizeof(T));
    return static_cast<T*>(p);
  }
  template <class U>
  void construct(U* p) {  // std::vector(n) does not initialize: a workspace is large
    ::new (static_cast<void*>(p)) U;
  }
  void deallocate(T* p, size_t) {
#ifdef GRADUS_CUDA
    if (managed) {
      cudaFree(p);  // waits for kernels
      return;
    }
#endif
    ::operator delete(p);
  }
};
template <class T>
using SharedVector = std::vector<T, SharedMemory<T>>;
inline std::vector<double> numbers_seen;  // everything that the running test has read from its buffers

class OnEveryDevice : public testing::TestWithParam<Turn> {
 protected:
  void SetUp() override {
    turn = GetParam();
    emu::set_order(turn.order);
    numbers_seen.clear();
  }
  void TearDown() override {
    const Turn now = std::exchange(turn, turns().front());  // for later tests that only use the cpu
    emu::set_order(turn.order);
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    const std::string test = std::string(info->test_suite_name()) + '.' + info->name();
    if (now.table == &cpu_backend() || IsSkipped()) return;
    static std::map<std::string, std::vector<double>> first;  // by test and device
    const auto [entry, is_first] = first.try_emplace(
        now.table->name + test.substr(0, test.rfind('/')) + std::to_string(int(now.alignment)), numbers_seen);
    if (is_first) return;
    ASSERT_EQ(entry->second.size(), numbers_seen.size());
    for (size_t i = 0; i < numbers_seen.size(); ++i)
      ASSERT_EQ(std::bit_cast<uint64_t>(entry->second[i]), std::bit_cast<uint64_t>(numbers_seen[i]))
          << "number " << i << " that this test read is " << entry->second[i]
          << " in one order of threads and " << numbers_seen[i] << " in order " << now.name
          << ": a barrier is missing, or the result depends on the schedule for a different reason";
  }
};
#define ON_EVERY_DEVICE(Suite)                                         \
  class Suite : public OnEveryDevice {};                               \
  INSTANTIATE_TEST_SUITE_P(Devices, Suite, testing::ValuesIn(turns()), \
                           [](const auto& info) { return std::string(info.param.name); })

// Unit roundoff of a dtype: half the distance from 1 to the next number.
inline double epsilon_of(DType t) {
  switch (t) {
    case DType::F64: return 0x1p-53;
    case DType::F32: return 0x1p-24;
    case DType::BF16: return 0x1p-8;
    default: return 0x1p-11;
  }
}

// Values stored as a dtype, with the turn's alignment: one element past 64-byte alignment, or aligned to 16
// bytes. The bytes before and after the values must not change.
class Buffer {
 public:
  Buffer(DType t, std::vector<double> values)
      : t_(t), n_(int64_t(values.size())), bytes_((values.size() + 4) * 8, kGuard) {
    visit_float("test", t, [&]<class T>() {
      for (int64_t i = 0; i < n_; ++i)
        data<T>()[i] = std::is_same_v<T, double> ? T(values[i]) : T(float(values[i]));
    });
  }
  static Buffer random(DType t, int64_t n, uint64_t stream, double scale = 1) {
    Rng rng(11, stream);
    std::vector<double> values(n);
    for (double& v : values) v = scale * rng.normal();
    return Buffer(t, values);
  }
  static Buffer zeros(DType t, int64_t n) { return Buffer(t, std::vector<double>(n, 0.0)); }

  CBuf in() const { return {data<char>(), t_}; }
  Out out(Write w) { return {data<char>(), t_, w}; }
  DType type() const { return t_; }
  std::vector<double> values() const {
    wait_for_kernels();
    std::vector<double> v(n_);
    visit_float("test", t_, [&]<class T>() {
      for (int64_t i = 0; i < n_; ++i) v[i] = double(acc_t<T>(data<T>()[i]));
    });
    numbers_seen.insert(numbers_seen.end(), v.begin(), v.end());
    const auto is_guard = [](char c) { return c == kGuard; };
    const auto first = bytes_.begin() + offset_, last = first + n_ * size_of(t_);
    EXPECT_TRUE(std::all_of(bytes_.begin(), first, is_guard) && std::all_of(last, bytes_.end(), is_guard))
        << "something was written before or after a buffer of " << n_ << " elements of " << name_of(t_);
    return v;
  }

 private:
  static constexpr char kGuard = 0x5A;
  template <class T>
  T* data() const {
    return reinterpret_cast<T*>(const_cast<char*>(bytes_.data()) + offset_);
  }
  DType t_;
  int64_t n_, offset_ = turn.alignment == Alignment::None ? size_of(t_) : 16;
  SharedVector<char> bytes_;
};

// Scratch, workspace and scalars (the device's and an optimizer's), as the engine passes them to a kernel.
struct TestScalars : StepScalars, UpdateScalars {};
struct TestCtx {
  static constexpr int64_t kAlignment = 256;  // cuBLAS requires it
  explicit TestCtx(const Cost& cost = {})
      : scratch_bytes(cost.scratch),
        scratch(cost.scratch + 2 * kAlignment),
        workspace(kWorkspaceBytes / sizeof(Piece) + 1) {}
  operator Ctx() { return {one_scalars.data(), one_scalars.data(), aligned(scratch), aligned(workspace)}; }
  template <class T>
  static void* aligned(SharedVector<T>& v) {
    return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(v.data()) + kAlignment - 1) / kAlignment *
                                   kAlignment);
  }
  // Fills scratch, and the bytes past its end, with NaN: a kernel must not read scratch before it writes it,
  // and must not write past the end (kept_to_its_scratch).
  void poison_scratch() { std::fill(scratch.begin(), scratch.end(), char(0xFF)); }
  bool kept_to_its_scratch() {
    wait_for_kernels();
    const char* const first = static_cast<char*>(aligned(scratch));
    return std::all_of(first + scratch_bytes, const_cast<const char*>(scratch.data() + scratch.size()),
                       [](char c) { return c == char(0xFF); });
  }
  TestScalars& scalars() {  // to read or to write
    wait_for_kernels();
    return one_scalars[0];
  }
  int64_t scratch_bytes;
  SharedVector<TestScalars> one_scalars = SharedVector<TestScalars>(1);
  SharedVector<char> scratch;
  struct Piece {  // large, because a vector constructs its elements one by one and tests have many workspaces
    char bytes[kAlignment];
  };
  SharedVector<Piece> workspace;
};

// The place of a kernel's formula; `op` begins with the kernel's name, with or without _fwd.
inline std::string formula_of(const std::string& op) {
  const std::string name = op.substr(0, op.find(' '));
  std::ifstream contract("kernels/entries.inc");
  std::string line;
  for (int n = 1; std::getline(contract, line); ++n)
    for (const char* end : {",", "_fwd,"})
      if (line.starts_with("GRADUS_KERNEL(" + name + end))
        return "; the formula: kernels/entries.inc:" + std::to_string(n) + " and the lines above";
  return "";
}

// |got - expected| <= bound[i] for every element; the failure names op, element, expected, got and the place
// of the formula.
inline void expect_close(const std::string& op, const std::vector<double>& got,
                         const std::vector<double>& expected, const std::function<double(int64_t)>& bound) {
  ASSERT_EQ(got.size(), expected.size()) << op;
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(got[i] - expected[i]), allowed = bound(int64_t(i));
    ASSERT_TRUE(error <= allowed || (std::isnan(got[i]) && std::isnan(expected[i])) || got[i] == expected[i])
        << op << ": element " << i << ": expected " << expected[i] << ", got " << got[i] << ", allowed error "
        << allowed << formula_of(op);
    if (allowed > 0) worst = std::max(worst, error / allowed);
  }
  ::testing::Test::RecordProperty("error / allowed error, %", std::to_string(100 * worst));
}

inline std::vector<DType> float_types() {  // only cpu has fp64, for tests
  if (turn.table == &cpu_backend()) return {DType::F64, DType::F32, DType::BF16, DType::F16};
  return {DType::F32, DType::BF16, DType::F16};
}
}  // namespace gradus
