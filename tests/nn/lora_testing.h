// Models of the three families with adapters, and the state of a model before and after a call.
#pragma once
#include "src/nn/lora.h"
#include "src/train/dummy.h"
#include "tests/devices.h"
#include "tests/nn/families_testing.h"

namespace gradus {

inline std::vector<double> normals(int64_t n, uint64_t stream, double std = 1) {
  Rng rng(11, stream);
  std::vector<double> values(static_cast<size_t>(n));
  for (double& v : values) v = std * rng.normal();
  return values;
}

// A model of one family on one device.
struct LoraTest : ::testing::TestWithParam<std::tuple<const char*, const char*>> {
  Context context{std::get<0>(GetParam()), 3};
  const char* name = std::get<1>(GetParam());
  TransformerConfig config = family(name);
  DummyBatch batch = dummy_batch(config, 2, config.context);

  std::vector<double> logits(const Transformer& model) {
    const Evaluation evaluation;
    return to_host<double>(model.logits(batch.ids, batch.types));
  }
  static void draw_b(Transformer& model) {  // so that adapters do something
    uint64_t stream = 100;
    for (Linear* l : model.linears())
      if (adapter_of(*l)) adapter_of(*l)->b.assign(normals(adapter_of(*l)->b.value.numel(), ++stream, 0.2));
  }
};
#define ON_DEVICES_AND_FAMILIES(Suite)                                                              \
  INSTANTIATE_TEST_SUITE_P(                                                                         \
      Families, Suite,                                                                              \
      ::testing::Combine(::testing::ValuesIn(devices_with_data()), ::testing::ValuesIn(kFamilies)), \
      [](const auto& info) { return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param); })

// The state of a model: its parameters, which of them train, their values, its adapters.
struct Kept {
  std::vector<std::string> names;
  std::vector<bool> trains, merged, in_4_bits, adapted;
  std::vector<std::vector<double>> weights;
  bool operator==(const Kept&) const = default;
};
inline Kept kept_of(Transformer& model) {
  Kept k;
  for (const Parameter& p : model.parameters) {
    k.names.push_back(p.name), k.trains.push_back(p.trainable()), k.merged.push_back(p.merged);
    k.in_4_bits.push_back(p.codes.has_value());
    k.weights.push_back(to_host<double>(p.codes ? p.codes->codes : p.kept()));
  }
  for (const Linear* l : model.linears()) k.adapted.push_back(adapter_of(*l) != nullptr);
  return k;
}

}  // namespace gradus
