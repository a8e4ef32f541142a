// Adapters in PEFT's files, read and written, compared with PEFT itself (tests/golden/make_peft.py).
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
    const std::vector<double> want = golden.read("logits", {2, 10, 37}),
                              got = to_host<double>(model.logits(ids));
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], bound) << "logit " << i;
  }
};
INSTANTIATE_TEST_SUITE_P(Models, L12_Peft,
                         ::testing::Combine(::testing::ValuesIn(devices_with_data()),
                                            ::testing::ValuesIn(models())),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
                         });

TEST_P(L12_Peft, LogitsOfLoadedAdapters) {
  load_adapters(folder_of(name()), model);
  expect_golden_logits(1e-4);
}

TEST_P(L12_Peft, MergedLogits) {
  RecordProperty("exercise", "12.3");
  load_adapters(folder_of(name()), model);
  merge_lora(model);
  expect_golden_logits(1e-4);
}

TEST_P(L12_Peft, LossAndGradientsOfTheAdaptersAlone) {
  RecordProperty("exercise", "12.2");
  load_adapters(folder_of(name()), model);
  for (Linear* l : model.linears())
    if (adapter_of(*l)) adapter_of(*l)->dropout = 0;
  const double expected = golden.read("loss", {1})[0];
  Tape tape;
  const Tensor loss = model.loss(ids, targets);
  EXPECT_NEAR(item(loss), expected, 1e-5 * expected);
  tape.backward(loss);
  // Through the file, which has PEFT's names and order of rows.
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
  const SafetensorsFile saved(path("saved/adapter_model.safetensors")),
      peft(folder_of(name()) + "/adapter_model.safetensors");
  ASSERT_EQ(saved.tensors().size(), peft.tensors().size());
  EXPECT_EQ(saved.metadata(), peft.metadata());
  for (const SafetensorsFile::Tensor& t : peft.tensors()) {
    std::vector<float> a(size_t(t.shape.numel())), b(a.size());
    peft.read(t.name, DType::F32, t.shape, a.data());
    saved.read(t.name, DType::F32, t.shape, b.data());
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

// Invalid folders: the error, and that the model is unchanged.
struct L12_BadFolder : FolderTest {
  Context context{"cpu"};
  Transformer model{small("gpt2")};
  std::string config = slurp(folder_of("gpt2") + "/adapter_config.json"),
              tensors = slurp(folder_of("gpt2") + "/adapter_model.safetensors");
  static std::string slurp(const std::string& file) {
    std::ostringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    return text.str();
  }
  std::string with(const std::string& field, const std::string& value) const {
    nlohmann::json changed = nlohmann::json::parse(config);
    changed[field] = nlohmann::json::parse(value);
    return changed.dump();
  }
  void refuses(const std::string& part, const std::string& its_config, const std::string& its_tensors) {
    write("a/adapter_config.json", its_config);
    write("a/adapter_model.safetensors", its_tensors);
    expect_refused(part, [&] { load_adapters(path("a"), model); });
    for (const Linear* l : model.linears()) EXPECT_FALSE(adapter_of(*l)) << part;
    EXPECT_EQ(model.parameters.numel_trainable(), model.parameters.numel()) << part;
  }
};

TEST_F(L12_BadFolder, ConfigurationsThatAreNoPlainLora) {
  refuses("json", "{\"r\": 3", tensors);
  refuses("the text is not an object", "[]", tensors);
  refuses("peft_type is not LORA", "{}", tensors);
  refuses("peft_type is not LORA", with("peft_type", "\"IA3\""), tensors);
  refuses("must be string", with("peft_type", "3"), tensors);
  refuses("biases were trained", with("bias", "\"all\""), tensors);
  refuses("use_dora", with("use_dora", "true"), tensors);
  refuses("use_rslora", with("use_rslora", "true"), tensors);
  refuses("modules_to_save", with("modules_to_save", "[\"lm_head\"]"), tensors);
  refuses("rank_pattern", with("rank_pattern", "{\"c_attn\": 2}"), tensors);
  refuses("alpha_pattern", with("alpha_pattern", "{\"c_attn\": 2}"), tensors);
  refuses("its init_lora_weights is \"pissa\"", with("init_lora_weights", "\"pissa\""), tensors);
  refuses("'r'", "{\"peft_type\": \"LORA\", \"lora_alpha\": 4}", tensors);
  refuses("expected", with("r", "4"), tensors);
  refuses("expected", with("r", "1000000000000"), tensors);  // before memory is allocated
  refuses("expected a whole number, found 3.9", with("r", "3.9"), tensors);
  refuses("expected a whole number, found 1e+300", with("r", "1e300"), tensors);
  refuses("has 1048577 bytes", config + std::string((1 << 20) + 1 - config.size(), ' '), tensors);
  refuses("alpha is 1e+300", with("lora_alpha", "1e300"), tensors);
  refuses("", with("r", "0"), tensors);
  refuses("", with("r", "-1"), tensors);
  refuses("dropout 1", with("lora_dropout", "1"), tensors);
  refuses("", "", tensors);
}

// An unknown key may change what an adapter computes; most of the keys that PEFT 0.3 to 0.21 writes do.
TEST_F(L12_BadFolder, AKeyThatIsNotKnownIsRefusedByItsNameUnlessItIsOff) {
  for (const char* value : {"[5, 7]", "true", "3", "0", "\"on\"", "{\"a\": 1}"})
    for (const std::string key : {"alora_invocation_tokens", "an_option_of_tomorrow"})
      refuses("it has " + key + ", which gradus lacks", with(key, value), tensors);
  for (const char* key :
       {"arrow_config", "corda_config", "kasa_config", "layer_replication", "loftq_config", "lora_bias",
        "lora_ga_config", "megatron_config", "monteclora_config", "target_parameters", "use_bdlora",
        "trainable_token_indices", "use_qalora", "velora_config", "ensure_weight_tying"})
    refuses("it has " + std::string(key), with(key, "[1]"), tensors);
}

TEST_F(L12_BadFolder, KeysThatAreOffOrSayNothingOfTheFunctionAreFine) {
  const std::pair<const char*, const char*> fine[] = {
      {"an_option_of_tomorrow", "null"},
      {"an_option_of_tomorrow", "false"},
      {"an_option_of_tomorrow", "[]"},
      {"an_option_of_tomorrow", "{}"},
      {"an_option_of_tomorrow", "\"\""},
      {"auto_mapping", "{\"base_model_class\": \"GPT2LMHeadModel\"}"},
      {"exclude_modules", "[\"c_fc\"]"},
      {"layers_to_transform", "[0, 1]"},
      {"layers_pattern", "\"h\""},
      {"base_model_name_or_path", "\"gpt2\""},
      {"revision", "\"main\""},
      {"peft_version", "\"0.99\""},
      {"qalora_group_size", "16"},
      {"megatron_core", "\"megatron.core\""},
      {"eva_config", "{\"rho\": 2.0}"},
      {"task_type", "\"CAUSAL_LM\""},
      {"init_lora_weights", "\"gaussian\""}};
  for (const auto& [key, value] : fine) {
    write("a/adapter_config.json", with(key, value));
    write("a/adapter_model.safetensors", tensors);
    Transformer fresh(model.config);
    EXPECT_EQ(refusal([&] { load_adapters(path("a"), fresh); }), "") << key << ": " << value;
  }
}

TEST_F(L12_BadFolder, TensorsOfSomethingElse) {
  const std::string other = folder_of("neox");
  refuses("is it of another model?", config, slurp(other + "/adapter_model.safetensors"));
  for (const size_t bytes : {size_t(0), size_t(7), size_t(200), tensors.size() - 1})
    refuses("adapter_model.safetensors", config, tensors.substr(0, bytes));
  const std::string name = "base_model.model.transformer.h.0.attn.c_attn.lora_";
  const std::vector<float> zeros(48 * 3, 0);
  const auto file_of = [&](const std::vector<TensorEntry>& entries) {
    write_safetensors(path("made"), entries);
    return read("made");
  };
  const TensorEntry a{name + "A.weight", DType::F32, {3, 16}, zeros.data()},
      b{name + "B.weight", DType::F32, {48, 3}, zeros.data()};
  refuses("has only one of", config, file_of({a}));
  refuses("has only one of", config, file_of({b}));
  refuses("A.weight is fp32 [16,3], expected fp32 [3,16]", config,
          file_of({{a.name, DType::F32, {16, 3}, zeros.data()}, b}));
  refuses("B.weight is fp32 [3,48], expected fp32 [48,3]", config,
          file_of({a, {b.name, DType::F32, {3, 48}, zeros.data()}}));
  refuses("floating", config, file_of({{a.name, DType::I32, a.shape, zeros.data()}, b}));
  refuses("floating", config, file_of({a, {b.name, DType::I32, b.shape, zeros.data()}}));
  refuses("has no adapters", config, file_of({}));
  expect_refused("missing", [&] { load_adapters(path("missing"), model); });
}

TEST_F(L12_BadFolder, ModelsThatHaveNoPlace) {
  expect_refused("the model has no adapters", [&] { save_adapters(path("b"), model); });
  EXPECT_EQ(files(), 0) << "nothing was written";
  TransformerConfig c = transformer_config("bert-base");
  c.vocab = 31, c.context = 12, c.layers = 1, c.heads = 2, c.channels = 8;
  Transformer bert(c);
  add_lora(bert, ".*c_attn", {.r = 2}, 1);
  expect_refused("BERT", [&] { save_adapters(path("b"), bert); });
  load_adapters(folder_of("gpt2"), model);
  expect_refused("adapters already", [&] { load_adapters(folder_of("gpt2"), model); });
}

// bf16 and fp16, as PEFT saves adapters that were trained in them; with a master copy in fp32, if the
// precision says so.
TEST_F(L12_BadFolder, OtherTypesOfNumbersAreFine) {
  const std::string name = "base_model.model.transformer.h.0.attn.c_attn.lora_";
  std::vector<bf16> a(48, bf16(0.5f));
  std::vector<fp16> b(144, fp16(0.25f));
  fs::create_directories(path("a"));
  write_safetensors(path("a/adapter_model.safetensors"),
                    {{name + "A.weight", DType::BF16, {3, 16}, a.data()},
                     {name + "B.weight", DType::F16, {48, 3}, b.data()}});
  write("a/adapter_config.json", config);
  TransformerConfig c = small("gpt2");
  c.precision = uniform(DType::BF16);
  Transformer half(c);
  load_adapters(path("a"), half, mixed(DType::BF16));
  LoraAdapter& lora = *adapter_of(*half.linears()[0]);
  for (const Tensor& t : {lora.a.value, lora.a.master})
    EXPECT_EQ(to_host<double>(t), std::vector<double>(48, 0.5));
  for (const Tensor& t : {lora.b.value, lora.b.master})
    EXPECT_EQ(to_host<double>(t), std::vector<double>(144, 0.25));
  EXPECT_FALSE(adapter_of(*half.linears()[1]));
  for (Parameter* p : {&lora.a, &lora.b})
    p->assign(std::vector<double>(size_t(p->value.numel()), 1.0 + 0x1p-20));  // rounded: 1
  save_adapters(path("b"), half);
  const SafetensorsFile file(path("b/adapter_model.safetensors"));
  for (const auto& [which, shape] : {std::pair("A.weight", Shape{3, 16}), {"B.weight", {48, 3}}}) {
    std::vector<float> saved(size_t(shape.numel()));
    file.read(name + which, DType::F32, shape, saved.data());
    EXPECT_EQ(saved, std::vector<float>(saved.size(), 1.0f + 0x1p-20f)) << which << ": the master copy";
  }
}

TEST_F(L12_BadFolder, LayersBeyondTheNinthHaveTheirNumbers) {
  TransformerConfig c = small("neox");
  c.layers = 12;
  Transformer deep(c);
  add_lora(deep, "h\\.11\\..*c_fc", {.r = 1}, 1);
  save_adapters(path("d"), deep);
  EXPECT_TRUE(SafetensorsFile(path("d/adapter_model.safetensors"))
                  .find("base_model.model.gpt_neox.layers.11.mlp.dense_h_to_4h.lora_A.weight"));
}

}  // namespace
}  // namespace gradus
