// Every file that a setting of a model writes is read by every other setting, or rejected with a message;
// then nothing has changed.
#include <map>

#include "src/io/peft.h"
#include "src/io/save_load.h"
#include "src/train/dummy.h"
#include "tests/devices.h"
#include "tests/folder_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

TransformerConfig small(const Precision& precision = {}) {
  return {.vocab = 31, .context = 6, .layers = 1, .heads = 2, .channels = 16, .precision = precision};
}
constexpr const char* kSettings[] = {"plain", "adapters", "merged", "QLoRA", "4 bits"};
constexpr const char* kFiles[] = {"weights", "training", "adapters"};

// A model in a setting, with its optimizer, after some steps, in its own context.
struct Trained {
  Trained(const char* device, const std::string& setting, uint64_t seed, int steps,
          const Precision& precision = {})
      : context(device), model(small(precision)) {
    model.initialize(seed);
    if (setting == "4 bits")
      for (Linear* l : model.linears()) model.parameters.set_trainable(l->weight, false);
    else if (setting != "plain")
      add_lora(model, ".*", {.r = 2, .alpha = 6, .precision = precision}, seed);
    if (setting == "QLoRA" || setting == "4 bits") quantize_frozen(model);
    optimizer = std::make_unique<AdamW>(model.parameters);
    for (int i = 0; i < steps; ++i) step();
    if (setting == "merged") merge_lora(model);
  }
  void step() {
    context.make_current();
    const DummyBatch batch = dummy_batch(small(), 2, 6);
    Tape tape;
    const Tensor loss = batch.loss(model);
    model.parameters.zero_grad();
    tape.backward(loss);
    optimizer->step(0.01);
  }
  std::vector<double> logits() {
    context.make_current();
    const Evaluation evaluation;
    return to_host<double>(model.logits(dummy_batch(small(), 2, 6).ids));
  }
  // Adapters, numbers and codes, states, counts.
  std::map<std::string, std::vector<double>> state() {
    std::map<std::string, std::vector<double>> all;
    context.end_attempt();
    all["counts"] = {double(context.device.scalars().step), double(optimizer->scalars().updates)};
    for (const Parameter& p : model.parameters) {
      all[p.name + " trains"] = {double(p.trainable()), double(p.merged), double(p.codes.has_value())};
      if (!p.codes) {
        all[p.name] = to_host<double>(p.value);
        continue;
      }
      all[p.name + " mean"] = {p.codes->mean};
      for (const Tensor& t : {p.codes->codes, p.codes->scale_codes})
        for (const int32_t code : to_host<int32_t>(t)) all[p.name].push_back(code);
      all[p.name + " scales"] = to_host<double>(p.codes->scale_scales);
    }
    for (const Optimizer::State& s : optimizer->states)
      for (const Tensor& t : s.tensors) all["optimizer." + t.storage().name()] = to_host<double>(t);
    return all;
  }
  Context context;
  Transformer model;
  std::unique_ptr<Optimizer> optimizer;
};

// The names of the tensors that differ.
using State = std::map<std::string, std::vector<double>>;
std::string changes(const State& before, const State& now) {
  std::string names = before.size() == now.size() ? "" : "other names ";
  for (const auto& [name, numbers] : now)
    if (const auto was = before.find(name); was == before.end() || was->second != numbers)
      names += name + " ";
  return names;
}

struct L12_Settings : FolderTest, ::testing::WithParamInterface<const char*> {
  L12_Settings() {
    Trained adapters = train("adapters", 1, 0);
    save_adapters(path("peft"), adapters.model);
  }
  static Trained train(const std::string& setting, uint64_t seed, int steps) {
    return {GetParam(), setting, seed, steps};
  }
  // Each file in a folder, under the name that PEFT uses, next to a configuration of PEFT's.
  static std::string tensors(const std::string& folder) { return folder + "/adapter_model.safetensors"; }
  void save(const std::string& file, const std::string& to, Trained& trained) const {
    trained.context.make_current();
    if (file == "adapters") return save_adapters(to, trained.model);
    fs::create_directories(to);
    if (file == "weights")
      save_weights(tensors(to), trained.model.parameters);
    else
      save_training(tensors(to), trained.model.parameters, *trained.optimizer);
    fs::copy(path("peft/adapter_config.json"), to);
  }
  static void load(const std::string& file, const std::string& from, Trained& trained) {
    trained.context.make_current();
    if (file == "adapters") return load_adapters(from, trained.model);
    if (file == "weights") return load_weights(tensors(from), trained.model.parameters);
    load_training(tensors(from), trained.model.parameters, *trained.optimizer);
  }
};
ON_DEVICES_WITH_DATA(L12_Settings);

// Frozen weights that had master copies; the resumed run is equal to the one that was not interrupted.
TEST_P(L12_Settings, QLoraInSixteenBitsGoesOn) {
  Trained whole(GetParam(), "QLoRA", 1, 2, mixed(DType::BF16)),
      later(GetParam(), "QLoRA", 2, 3, mixed(DType::BF16));
  save("training", path("a"), whole);
  load("training", path("a"), later);
  for (int step = 0; step < 3; ++step) {
    whole.step(), later.step();
    EXPECT_EQ(changes(whole.state(), later.state()), "") << step;
  }
}

constexpr const char *kUnmerge = "unmerge_lora() the model first", *kNone = "the model has no adapters";

// A setting and a file that it cannot write: then there is no file, and the model is unchanged.
TEST_P(L12_Settings, WhatIsNotWritten) {
  for (const auto& [setting, file, sentence] : {std::tuple("plain", "adapters", kNone),
                                                {"4 bits", "adapters", kNone},
                                                {"merged", "weights", kUnmerge},
                                                {"merged", "training", kUnmerge}}) {
    Trained writer = train(setting, 1, 1);
    const auto before = writer.state();
    expect_refused(sentence, [&] { save(file, path("a"), writer); });
    EXPECT_EQ(changes(before, writer.state()), "") << setting << ", " << file;
    EXPECT_FALSE(fs::exists(tensors(path("a")))) << setting << ", " << file;
  }
}

// The error when a setting reads another setting's file as one of the three; "" if it is read.
std::string said(const std::string& wrote, const std::string& file, const std::string& reads,
                 const std::string& as) {
  if (as == "adapters" && file != "adapters") return "for which this model has no layer";
  if (as == "adapters") return reads == "plain" || reads == "4 bits" ? "" : "the model has adapters already";
  if (as == "training" && file != "training") return "it holds weights only";
  if (reads == "merged") return kUnmerge;
  return file == as && wrote == reads ? "" : "adapter_model.safetensors";
}

// A file of one setting, read by each: the model computes what the writer's model computes, or nothing has
// changed.
void expect_read(Trained& writer, const std::string& wrote, Trained& reader, const std::string& reads,
                 const std::string& file) {
  if (file != "adapters") {
    EXPECT_EQ(reader.logits(), writer.logits());
    if (file == "weights") return;
    reader.step(), writer.step();  // it goes on like a run that was not interrupted
    EXPECT_EQ(changes(writer.state(), reader.state()), "");
    return;
  }
  for (const Parameter& p : writer.model.parameters) {
    if (p.name.find(".lora_") == std::string::npos) continue;
    EXPECT_EQ(to_host<double>(reader.model.parameters.find(p.name).value), to_host<double>(p.value));
  }
  if ((wrote == "QLoRA") != (reads == "4 bits")) return;  // the same adapters on a different base model
  const std::vector<double> got = reader.logits(), want = writer.logits();
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], want[i], wrote == "merged" ? 1e-5 : 0) << "logit " << i;
}

TEST_P(L12_Settings, WhatIsWrittenIsReadOrRefusedWithNothingChanged) {
  int read = 0;
  for (const std::string wrote : kSettings)
    for (const std::string file : kFiles) {
      if (wrote == "merged" ? file != "adapters"
                            : file == "adapters" && wrote != "adapters" && wrote != "QLoRA")
        continue;
      const std::string at = path(wrote + " " + file);
      Trained original = train(wrote, 1, 1);
      save(file, at, original);
      for (const std::string reads : kSettings)
        for (const std::string as : kFiles) {
          SCOPED_TRACE(file + " of " + wrote + ", read as " + as + " by " + reads);
          const bool base = as == "adapters";  // the base model of the adapters, which has not been trained
          Trained reader = train(reads, base ? 1 : 2, base ? 0 : 2);
          const auto before = reader.state();
          const std::string sentence = said(wrote, file, reads, as),
                            text = refusal([&] { load(as, at, reader); });
          ASSERT_EQ(text.empty(), sentence.empty()) << text;
          EXPECT_NE(text.find(sentence), std::string::npos) << text;
          if (!text.empty()) {
            EXPECT_EQ(changes(before, reader.state()), "") << text;
            continue;
          }
          ++read;
          Trained writer = train(wrote, 1, 1);  // in the state in which the file was written
          expect_read(writer, wrote, reader, reads, file);
        }
    }
  EXPECT_EQ(read, 4 + 4 + 3 * 2);
}

}  // namespace
}  // namespace gradus
