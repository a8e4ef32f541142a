// The same model on every device: exactly the same bytes of each kind, and the same losses within rounding.
#include <cmath>

#include "tests/devices.h"
#include "tests/nn/families_testing.h"

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
  const DummyBatch data = dummy_batch(config, batch, config.context);
  for (int64_t step = 0; step < steps; ++step)
    trained.losses.push_back(train_step(model, optimizer, data, 1e-3));
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
  EXPECT_EQ(a.work, b.work) << "the kernels or their costs differ";
}

const TransformerConfig kTiny{.vocab = 65, .context = 24, .layers = 2, .heads = 4, .channels = 32};

void expect_trains_as_cpu(const char* device, const TransformerConfig& config) {
  const Trained cpu = train("cpu", config, 3, 10), got = train(device, config, 3, 10);
  expect_same_memory(cpu, got);
  // The tolerance is for ten steps at this rate: each sum is rounded differently, and AdamW may divide by a
  // small number.
  for (size_t i = 0; i < cpu.losses.size(); ++i)
    EXPECT_NEAR(got.losses[i], cpu.losses[i], 1e-4) << device << ", step " << i;
  EXPECT_LT(got.losses.back(), got.losses.front()) << device;
}
TEST(L03_Devices, EachTrainsAsCpuDoes) {
  TransformerConfig plain = kTiny, flash = kTiny;
  plain.dropout = 0.1, flash.attention = attention_flash;
  for (const char* device : devices_with_data()) {
    for (const TransformerConfig& config : {plain, flash}) expect_trains_as_cpu(device, config);
    EXPECT_EQ(train(device, kTiny, 3, 3).losses, train(device, kTiny, 3, 3).losses)
        << device << ": two equal runs must be bitwise equal";
  }
}
TEST(L04_Devices, EachTrainsBertAndNeoXAsCpuDoes) {
  for (const char* name : {"bert", "neox"}) {
    TransformerConfig config = family(name);
    config.dropout = 0.1;
    for (const char* device : devices_with_data()) expect_trains_as_cpu(device, config);
    expect_same_memory(train("cpu", config, 3, 2), train("meta", config, 3, 2));
  }
}

TEST(L03_Devices, EveryDeviceNeedsTheSameBytesAndMetaComputesNothing) {
  for (TransformerConfig config : {kTiny, TransformerConfig{}}) {  // and lesson 03's own model
    const Trained cpu = train("cpu", config, 8, 3), meta = train("meta", config, 8, 3);
    expect_same_memory(cpu, meta);
    expect_same_memory(train("emu", config, 8, 3), meta);
    for (const double loss : meta.losses) EXPECT_TRUE(std::isnan(loss));
  }
}

TEST(L03_Devices, MetaMeasuresWhatNoStudentOwns) {
  TransformerConfig config = transformer_config("gpt2-xl");
  const Trained meta = train("meta", config, 8, 1);
  EXPECT_EQ(meta.peak[Kind::Weight], 4 * config.parameter_count());
  EXPECT_EQ(meta.peak[Kind::Optimizer], 8 * config.parameter_count());
  EXPECT_GT(meta.reserved, int64_t(64) << 30);
}

TEST(L03_Devices, UnknownAndMissingDevicesAreNamed) {
  for (const char* name : {"tpu", "", "CPU", "cuda9"})
    expect_refused("auto, cpu, cuda, emu and meta", [&] { Device device(name); });
}

}  // namespace
}  // namespace gradus
