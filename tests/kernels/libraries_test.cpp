// The code around cuBLAS and cuDNN: on the stand-ins for them everywhere, on the libraries where there is a
// GPU.
#include <iostream>

#include "kernels/cuda/attention_calls.h"
#include "src/data/dummy.h"
#include "src/nn/transformer.h"
#include "src/optim/optimizer.h"
#include "src/train/report.h"
#include "tests/kernels/libraries_testing.h"

namespace gradus {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

std::vector<Turn> turns_of_libraries() {
  std::vector<Turn> all{on_standins()};
  for (const Turn& t : turns())
    if (t.alignment == Alignment::Full) all.push_back(t);
  return all;
}
class L03_Libraries : public OnEveryDevice {
 protected:
  void SetUp() override {
    OnEveryDevice::SetUp();
    standin::machine() = {};
    before_ = attention_calls.by_cudnn;
  }
  int64_t calls_of_cudnn() const { return attention_calls.by_cudnn - before_; }
  // A build without cuDNN, or with one that is too old, has nothing to test here, nor has a GPU before
  // Ampere.
  static bool cudnn_is_there() {
    return !on_cuda() || (attention_calls.cudnn_version >= kOldestCudnn && cuda_facts().sm >= 80);
  }

 private:
  int64_t before_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Devices, L03_Libraries, testing::ValuesIn(turns_of_libraries()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(L03_Libraries, CudnnsAttentionIsTheFormula) {
  int64_t expected = 0;
  for (const DType t : {DType::BF16, DType::F16})
    for (const int64_t T : {64, 192, 1024})
      for (const int64_t D : {64, 128})
        for (const Mask mask : {Mask::Causal, Mask::None}) {
          if (T == 1024 && (mask == Mask::None || kSanitized)) continue;  // the same graphs, and minutes
          expect_as_fp64(t, packed(T == 1024 ? 1 : 2, T == 1024 ? 1 : 2, T, D, mask));
          expected += 2;
        }
  if (!cudnn_is_there()) GTEST_SKIP() << attention_text();
  EXPECT_EQ(calls_of_cudnn(), expected) << "a call was left to our own kernels";
}

// One attention in 16 bits, two codes for it, in a whole model.
std::vector<double> losses_of_training(const Precision& precision, const Backend* table) {
  Context context(table && on_cuda() ? "cuda" : "cpu", 1);
  if (table && !on_cuda()) context.device.use(*table);
  Transformer model({.vocab = 65,
                     .context = 64,
                     .layers = 2,
                     .heads = 2,
                     .channels = 128,
                     .precision = precision,
                     .attention = attention_flash});
  model.initialize(1);
  AdamW optimizer(model.parameters);
  std::vector<double> losses;
  for (uint64_t step = 0; step < 4; ++step) {
    const DummyBatch batch = dummy_batch(model.config, 2, model.config.context, step / 3);
    Tape tape;
    const Tensor loss = batch.loss(model);
    losses.push_back(item(loss));
    model.parameters.zero_grad();
    tape.backward(loss);
    optimizer.step(1e-3);
  }
  return losses;
}
TEST_P(L03_Libraries, AModelInSixteenBitsTrainsWithCudnnsAttention) {
  if (kSanitized) GTEST_SKIP() << "the same code as CudnnsAttentionIsTheFormula runs, for a minute";
  Backend mine = cpu_backend();  // all but attention
  mine.attention_flash_fwd = table().attention_flash_fwd;
  mine.attention_flash_bwd = table().attention_flash_bwd;
  for (const Precision& precision : {mixed(DType::BF16), uniform(DType::BF16), mixed(DType::F16)}) {
    const std::vector<double> cpu = losses_of_training(precision, nullptr),
                              got = losses_of_training(precision, &mine);
    // Logits near 4 are numbers of T; a few may be rounded the other way in each step.
    for (size_t i = 0; i < cpu.size(); ++i)
      EXPECT_NEAR(got[i], cpu[i], 16 * epsilon_of(precision.value)) << "step " << i;
    EXPECT_LT(got[2], got[0]);
  }
  if (!cudnn_is_there()) GTEST_SKIP() << attention_text();
  EXPECT_EQ(calls_of_cudnn(), 3 * 4 * 2 * 2) << "recipes, steps, layers, forward and backward";
}

TEST_P(L03_Libraries, ARunSaysWhichAttentionItUsed) {
  attend(DType::F32, packed(1, 1, 8, 8, Mask::Causal));
  std::ostringstream printed;
  std::streambuf* const terminal = std::cout.rdbuf(printed.rdbuf());
  const Context context("cpu", 1);
  Report("a lesson", current().device).finish("");
  std::cout.rdbuf(terminal);
  const std::string text = attention_text();
  EXPECT_NE(printed.str().find(text + "\n"), std::string::npos) << printed.str();
  EXPECT_NE(text.find(std::to_string(attention_calls.by_cudnn) + " calls by cuDNN"), std::string::npos)
      << text;
  EXPECT_NE(text.find(std::to_string(attention_calls.by_own) + " by our own kernels"), std::string::npos);
}

}  // namespace
}  // namespace gradus
