// The memory of chains in addition to the step's: it is as large as they need, and belongs to them as long as
// the step replays.
#include "src/ops/ops.h"
#include "tests/train/chains_testing.h"

namespace gradus {
namespace {

struct L16_ChainsMemory : ::testing::TestWithParam<std::tuple<const char*, DType>> {
  // gamma is frozen, so one of a norm's two sums is not needed.
  OpsCase of{.shape = {100, 33},
             .ops =
                 [](OpsStep& s) {
                   const Tensor a = layernorm(add(s.x, s.parameter("weight")), s.parameter("gamma").detach(),
                                              s.parameter("beta"));
                   return gelu(scale(add(softmax(scale(a, 2)), scale(a, 3)), 2));
                 },
             .dtype = std::get<1>(GetParam()),
             .device = std::get<0>(GetParam())};
  Context context{of.device, 3};
  std::vector<Tensor> others;
  // Tensors of many sizes, which are placed in memory that the step has freed, and after its memory.
  void fill_memory() {
    for (int i = 0; i < 100; ++i) {
      const int64_t n = 1 + 100 * i;
      others.emplace_back(context.device, Shape{n}, DType::F32, Kind::Other, "other");
      copy_from_host(others.back(), std::vector<double>(size_t(n), 7));
    }
  }
  // Results of a step that is fused before its run number 3 and, if `twice`, also before number 4.
  Numbers results(bool twice) {
    OpsStep step(of.shape, of.dtype, of.ops, of.passes);
    Numbers all;
    for (int64_t s = 0; s < 7; ++s) {
      if (s == 3) fuse_chains(step.captured, shared_compiler());
      if (s == 4 && twice) refusal([&] { fuse_chains(step.captured, shared_compiler()); });
      if (s == 3 || s == 4) fill_memory();
      step.run(s);
      all.push_back(to_host<double>(step.y));
    }
    for (const Parameter& p : step.parameters)
      if (p.leaf.grad.defined()) all.push_back(to_host<double>(p.leaf.grad));
    return all;
  }
  void expect_untouched() const {
    int64_t changed = 0;
    for (const Tensor& other : others)
      changed += to_host<double>(other) != std::vector<double>(size_t(other.numel()), 7);
    EXPECT_EQ(changed, 0) << "tensors outside the step that the step has written to";
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, L16_ChainsMemory,
                         ::testing::Combine(::testing::Values("cpu", "emu"),
                                            ::testing::Values(DType::F32, DType::BF16)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  std::string(name_of(std::get<1>(info.param)));
                         });

TEST_P(L16_ChainsMemory, TheChainsWriteToNothingElse) {
  EXPECT_TRUE(results(false) == run_ops(of, false).results) << "results that differ from unfused ones";
  context.make_current();
  expect_untouched();
}

// The second call finds nothing left to fuse, or is rejected.
TEST_P(L16_ChainsMemory, FusedTwiceIsFusedOnce) {
  EXPECT_TRUE(results(true) == run_ops(of, false).results) << "results that differ from unfused ones";
  context.make_current();
  expect_untouched();
}

}  // namespace
}  // namespace gradus
