// The same model on every device: the same bytes to the byte, by kind, and the same losses within rounding.
#include <gtest/gtest.h>

#include <cmath>

#include "src/data/dummy.h"
#include "src/nn/transformer.h"
#include "src/optim/optimizer.h"
#include "src/tensor/context.h"
#include "src/train/machine.h"
#include "tests/devices.h"

namespace gradus {
namespace {

struct Trained {
  std::vector<double> losses;
  Usage peak;
  int64_t reserved, requests;
  std::map<Cost, int64_t> work;
};

Trained train(const char* device, const TransformerConfig& config, int64_t batch, int64_t steps) {
  Context context(device, 3);
  context.device.meter().keep_trace();
  Transformer model(config);
  model.initialize(3);
  AdamW optimizer(model.parameters, {.weight_decay = 0.1f});
  Trained trained;
  for (int64_t step = 0; step < steps; ++step) {
    const DummyBatch data = dummy_batch(config, batch, config.context, uint64_t(step));
    Tape tape;
    const Tensor loss = data.loss(model);
    trained.losses.push_back(item(loss));
    model.parameters.zero_grad();
    tape.backward(loss);
    optimizer.clip_grad_norm(1.0);
    optimizer.step(1e-3);
  }
  const Meter& meter = context.device.meter();
  trained.peak = meter.at_peak(), trained.reserved = meter.peak_reserved();
  trained.requests = meter.device_requests(), trained.work = meter.trace();
  return trained;
}

void expect_same_memory(const Trained& a, const Trained& b) {
  for (int k = 0; k < kKinds; ++k) EXPECT_EQ(a.peak.by_kind[k], b.peak.by_kind[k]) << name_of(Kind(k));
  EXPECT_EQ(a.peak.rounding, b.peak.rounding);
  EXPECT_EQ(a.reserved, b.reserved);
  EXPECT_EQ(a.requests, b.requests);
  EXPECT_EQ(a.work, b.work) << "the same kernels with the same costs";
}

const TransformerConfig kTiny{.vocab = 65, .context = 24, .layers = 2, .heads = 4, .channels = 32};

void expect_trains_as_cpu(const char* device) {
  TransformerConfig config = kTiny;
  for (const bool flash : {false, true}) {
    config.attention = flash ? attention_flash : attention_plain;
    config.dropout = flash ? 0 : 0.1;
    const Trained cpu = train("cpu", config, 3, 10), got = train(device, config, 3, 10);
    expect_same_memory(cpu, got);
    // Ten steps at this rate; rounding differs in the last bits of each sum, and AdamW divides by what may be
    // small.
    for (size_t i = 0; i < cpu.losses.size(); ++i)
      EXPECT_NEAR(got.losses[i], cpu.losses[i], 1e-4) << "step " << i;
    EXPECT_LT(got.losses.back(), got.losses.front());
  }
}
TEST(L03_Devices, EmuTrainsAsCpuDoes) { expect_trains_as_cpu("emu"); }
TEST(L03_Devices, CudaTrainsAsCpuDoes) {
  const std::string problem = cuda_problem(cuda_facts());
  if (!problem.empty()) GTEST_SKIP() << problem;
  expect_trains_as_cpu("cuda");
  const Trained once = train("cuda", kTiny, 3, 10), again = train("cuda", kTiny, 3, 10);
  EXPECT_EQ(once.losses, again.losses) << "the same run must give the same bits";
}

TEST(L03_Devices, EveryDeviceNeedsTheSameBytesAndMetaComputesNothing) {
  for (TransformerConfig config : {kTiny, TransformerConfig{}}) {  // and lesson 03's own model
    const Trained cpu = train("cpu", config, 8, 3), meta = train("meta", config, 8, 3);
    expect_same_memory(cpu, meta);
    expect_same_memory(train("emu", config, 8, 3), meta);
    for (const double loss : meta.losses) EXPECT_TRUE(std::isnan(loss));
  }
}

TEST(L03_Devices, AStepOfGpt2NeedsTheSameBytesOnEveryDevice) {  // one layer of its twelve
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "minutes under a sanitizer";
#endif
  TransformerConfig config = transformer_config("gpt2");
  config.context = 64, config.layers = 1;
  const Trained meta = train("meta", config, 1, 1);
  for (const char* device : devices_with_data()) expect_same_memory(train(device, config, 1, 1), meta);
}

TEST(L03_Devices, MetaMeasuresWhatNoStudentOwns) {
  TransformerConfig config = transformer_config("gpt2-xl");
  const Trained meta = train("meta", config, 8, 1);
  EXPECT_EQ(meta.peak[Kind::Weight], 4 * config.parameter_count());
  EXPECT_EQ(meta.peak[Kind::Optimizer], 8 * config.parameter_count());
  EXPECT_GT(meta.reserved, int64_t(64) << 30);
}

TEST(L03_Devices, UnknownAndMissingDevicesAreNamed) {
  for (const char* name : {"tpu", "", "CPU", "cuda9"}) try {
      Device device(name);
      ADD_FAILURE() << name << " was accepted";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("auto, cpu, cuda, emu and meta"), std::string::npos) << e.what();
    }
}

// One kernel of known cost: the longer of its two times, on each machine.
TEST(L03_Devices, PredictedTimeIsTheRoofline) {
  const Machine machine{"m", "", 1e9, 8e9, 1e6, 0};
  Meter meter;
  meter.keep_trace();
  meter.count({OpClass::Contraction, 4'000'000'000, 1'000'000, 0, DType::F32});  // 4 s of FLOPs, 1 s of bytes
  EXPECT_DOUBLE_EQ(predicted_seconds(meter, machine), 4);
  meter.count({OpClass::Contraction, 4'000'000'000, 1'000'000, 0, DType::BF16});  // 0.5 s, 1 s
  meter.count({OpClass::Elementwise, 10, 3'000'000, 0, DType::F32});
  EXPECT_DOUBLE_EQ(predicted_seconds(meter, machine), 4 + 1 + 3);
  meter.reset_work();
  EXPECT_EQ(predicted_seconds(meter, machine), 0);
}

}  // namespace
}  // namespace gradus
