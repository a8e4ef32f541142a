// Adapters in PEFT's files, both ways, beside PEFT itself (tests/golden/make_peft.py).
#include "src/io/peft.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/folder_testing.h"
#include "tests/nn/golden_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

TransformerConfig small(const std::string& name) {
  TransformerConfig c = transformer_config(name == "gpt2" ? "gpt2" : "polyglot-ko-1.3b");
  c.vocab = 37, c.context = 10, c.layers = 2, c.heads = 2, c.channels = 16;
  if (c.rotary > 0) c.rotary = 4;
  return c;
}
std::string folder_of(const std::string& name) { return "tests/golden/peft_" + name; }

std::vector<std::string> models() { return {"gpt2", "neox"}; }
struct L12_Peft : FolderTest, ::testing::WithParamInterface<std::tuple<const char*, std::string>> {
  std::string name() const { return std::get<1>(GetParam()); }
  Context context{std::get<0>(GetParam())};
  Golden golden{(folder_of(name()) + "/golden.safetensors").c_str()};
  Transformer model{small(name())};
  Tensor ids, targets;
  L12_Peft() {
    golden.read_weights(model.parameters);
    ids = golden.read_ids("ids", {2, 10});
    targets = golden.read_ids("targets", {2, 10});
  }
  void expect_golden_logits(double bound) {
    const Evaluation evaluation;
    const std::vector<double> want = golden.read("logits", {2, 10, 37}), got = to_host<double>(model.logits(ids));
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], bound) << "logit " << i;
  }
};
INSTANTIATE_TEST_SUITE_P(Models, L12_Peft,
                         ::testing::Combine(::testing::ValuesIn(devices_with_data()), ::testing::ValuesIn(models())),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
                         });

TEST_P(L12_Peft, LogitsOfLoadedAdapters) {
  load_adapters(folder_of(name()), model);
  expect_golden_logits(1e-4);
}

TEST_P(L12_Peft, MergedLogits) {
  load_adapters(folder_of(name()), model);
  merge_lora(model);
  expect_golden_logits(1e-4);
}

TEST_P(L12_Peft, LossAndGradientsOfTheAdaptersAlone) {
  RecordProperty("exercise", "12.1");
  load_adapters(folder_of(name()), model);
  for (Linear* l : model.linears())
    if (l->lora) l->lora->dropout = 0;
  const double expected = golden.read("loss", {1})[0];
  Tape tape;
  const Tensor loss = model.loss(ids, targets);
  EXPECT_NEAR(item(loss), expected, 1e-5 * expected);
  tape.backward(loss);
  // Through the file, whose names and order of rows are PEFT's.
  for (Parameter& p : model.parameters) {
    EXPECT_EQ(p.leaf.grad.defined(), p.trainable()) << p.name;
    if (p.trainable()) p.assign(to_host<double>(p.leaf.grad));
  }
  save_adapters(path("gradients"), model);
  const SafetensorsFile file(path("gradients/adapter_model.safetensors"));
  for (const SafetensorsFile::Tensor& t : file.tensors()) {
    std::vector<float> got(size_t(t.shape.numel()));
    file.read(t.name, DType::F32, t.shape, got.data());
    const std::vector<double> want = golden.read("grad." + t.name, t.shape);
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 1e-4 * Golden::norm(want)) << t.name << ", element " << i;
  }
}

TEST_P(L12_Peft, WhatIsSavedIsWhatPeftSaved) {
  load_adapters(folder_of(name()), model);
  save_adapters(path("saved"), model, "a base");
  const SafetensorsFile ours(path("saved/adapter_model.safetensors")),
      theirs(folder_of(name()) + "/adapter_model.safetensors");
  ASSERT_EQ(ours.tensors().size(), theirs.tensors().size());
  EXPECT_EQ(ours.metadata(), theirs.metadata());
  for (const SafetensorsFile::Tensor& t : theirs.tensors()) {
    std::vector<float> a(size_t(t.shape.numel())), b(a.size());
    theirs.read(t.name, DType::F32, t.shape, a.data());
    ours.read(t.name, DType::F32, t.shape, b.data());
    EXPECT_EQ(a, b) << t.name;
  }
  nlohmann::json config = nlohmann::json::parse(read("saved/adapter_config.json")), want;
  std::ifstream(folder_of(name()) + "/adapter_config.json") >> want;
  for (const char* field : {"peft_type", "task_type", "inference_mode", "r", "lora_alpha", "lora_dropout",
                            "fan_in_fan_out", "bias"})
    EXPECT_EQ(config[field], want[field]) << field;
  EXPECT_EQ(config["base_model_name_or_path"], "a base");
  EXPECT_EQ(config["target_modules"].size(), 4U);
}

}  // namespace
}  // namespace gradus
