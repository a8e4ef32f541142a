#include "src/io/peft.h"

#include <deque>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "src/core/input_file.h"
#include "src/core/json.h"
#include "src/io/atomic_file.h"
#include "src/io/save_load.h"
#include "src/tensor/context.h"

namespace gradus {

constexpr const char *kTensors = "/adapter_model.safetensors", *kConfig = "/adapter_config.json",
                     *kPrefix = "base_model.model.", *kA = ".lora_A.weight", *kB = ".lora_B.weight";

// The linear layers of a block: the name here, which is GPT-2's, and GPT-NeoX's name.
constexpr std::pair<const char*, const char*> kLayers[] = {{"attn.c_attn", "attention.query_key_value"},
                                                           {"attn.c_proj", "attention.dense"},
                                                           {"mlp.c_fc", "mlp.dense_h_to_4h"},
                                                           {"mlp.c_proj", "mlp.dense_4h_to_h"}};

static bool is_neox(const TransformerConfig& c) { return c.residual == Residual::Parallel; }

// The module that PEFT adapts, for a layer such as "h.0.attn.c_attn".
static std::string module_of(const TransformerConfig& c, const std::string& layer) {
  check(c.residual != Residual::PostNorm,
        "peft: adapters of BERT are not supported, only those of GPT-2 and "
        "GPT-NeoX");
  if (!is_neox(c)) return "transformer." + layer;
  const size_t dot = layer.find('.', 2);
  for (const auto& [here, neox] : kLayers)
    if (layer.substr(dot + 1) == here) return "gpt_neox.layers." + layer.substr(2, dot - 2) + "." + neox;
  fail("peft: ", layer, " has no name in GPT-NeoX");
}

// Converts the values of a layer's B to the order of rows in the file, or back. The rows of q, k and v are
// here q of all heads, then k, then v; in GPT-NeoX q, k and v of the first head, then of the next.
static std::vector<double> reorder(const TransformerConfig& c, const Linear& l,
                                   const std::vector<double>& from, bool to_theirs) {
  if (!is_neox(c) || !l.name.ends_with("attn.c_attn")) return from;
  const int64_t D = c.channels / c.heads, r = int64_t(from.size()) / (3 * c.channels);
  std::vector<double> to(from.size());
  for (int64_t ours = 0; ours < 3 * c.channels; ++ours) {
    const int64_t part = ours / c.channels, head = ours % c.channels / D;
    const int64_t theirs = (3 * head + part) * D + ours % D;
    std::copy_n(&from[size_t((to_theirs ? ours : theirs) * r)], r,
                &to[size_t((to_theirs ? theirs : ours) * r)]);
  }
  return to;
}

static Json config_of(const Transformer& model, const Linear& l, const std::vector<std::string>& modules,
                      const std::string& base) {
  return {{"peft_type", "LORA"},
          {"task_type", "CAUSAL_LM"},
          {"base_model_name_or_path", base},
          {"inference_mode", true},
          {"r", adapter_of(l)->a.value.shape()[0]},
          {"lora_alpha", adapter_of(l)->alpha},
          {"lora_dropout", adapter_of(l)->dropout},
          {"fan_in_fan_out", !is_neox(model.config)},  // GPT-2's own weights are (in, out)
          {"bias", "none"},
          {"target_modules", modules}};
}

void save_adapters(const std::string& folder, Transformer& model, const std::string& base) {
  std::vector<std::string> modules;
  std::deque<std::vector<float>> numbers;
  std::vector<TensorEntry> entries;
  const Linear* one = nullptr;
  for (const Linear* l : model.linears()) {
    if (!adapter_of(*l)) continue;
    one = l;
    modules.push_back(module_of(model.config, l->name));
    const std::string name = kPrefix + modules.back();
    numbers.push_back(to_host<float>(adapter_of(*l)->a.kept()));
    entries.push_back({name + kA, DType::F32, adapter_of(*l)->a.value.shape(), numbers.back().data()});
    const std::vector<double> b = reorder(model.config, *l, to_host<double>(adapter_of(*l)->b.kept()), true);
    numbers.emplace_back(b.begin(), b.end());
    entries.push_back({name + kB, DType::F32, adapter_of(*l)->b.value.shape(), numbers.back().data()});
  }
  check(one != nullptr, "peft: ", folder, " cannot be written: the model has no adapters");
  make_folder_of(folder + kTensors);
  write_safetensors(folder + kTensors, entries, {{"format", "pt"}});
  write_file(
      folder + kConfig,
      config_of(model, *one, modules, base).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

// Reads the folder's configuration; an error if it describes something other than plain LoRA.
static LoraArgs read_config(const std::string& path) {
  // Keys that are read here, or do not change what adapters compute. Any other (use_dora, ...) must be off.
  static const std::regex harmless(
      "auto_mapping|base_model_name_or_path|bias|eva_config|exclude_modules|fan_in_fan_out|inference_mode|"
      "init_lora_weights|layers_pattern|layers_to_transform|lora_alpha|lora_dropout|megatron_core|peft_type|"
      "peft_version|qalora_group_size|r|revision|target_modules|task_type");
  const std::string text = read_text_file(path, 1 << 20);
  try {
    ParsedJson config = ParsedJson::object();
    parse_fields(text, 100'000, [&](const std::string& key, ParsedJson& value) { config[key] = value; });
    check(config.value("peft_type", "") == "LORA", "its peft_type is not LORA");
    check(config.value("bias", "none") == "none", "biases were trained, too");
    for (const auto& [key, value] : config.items())
      check(std::regex_match(key, harmless) || value.empty() || value == false || value == "", "it has ", key,
            ", which gradus lacks");
    const ParsedJson init = config.value("init_lora_weights", ParsedJson(true));
    check(!init.is_string() || init == "gaussian" || init == "eva" || init == "orthogonal",
          "its init_lora_weights is ", Brief{init}, ": the base was changed with it");
    const int64_t r = whole_number(config.at("r"));
    check(r >= 1, "its r is ", r);
    return {
        .r = r, .alpha = config.at("lora_alpha").get<double>(), .dropout = config.value("lora_dropout", 0.0)};
  } catch (const std::exception& e) {
    fail("peft: ", path, ": ", e.what());
  }
}

void load_adapters(const std::string& folder, Transformer& model, const Precision& precision) {
  LoraArgs args = read_config(folder + kConfig);
  args.precision = precision;
  const SafetensorsFile file(folder + kTensors);
  struct Numbers {
    std::vector<double> a, b;
  };
  std::vector<Linear*> layers;
  std::vector<Numbers> numbers;  // by layer
  std::set<std::string> unknown;
  for (const SafetensorsFile::Tensor& t : file.tensors()) unknown.insert(t.name);
  for (Linear* l : model.linears()) {
    const std::string name = kPrefix + module_of(model.config, l->name), a = name + kA, b = name + kB;
    if (unknown.erase(a) + unknown.erase(b) == 0) continue;
    check(file.find(a) && file.find(b), "peft: ", folder, kTensors, " has only one of ", a, " and ", b);
    const Shape& w = l->weight.value.shape();
    layers.push_back(l);
    numbers.push_back({read_numbers(file, a, {args.r, w[1]}),
                       reorder(model.config, *l, read_numbers(file, b, {w[0], args.r}), false)});
  }
  check(unknown.empty(), "peft: ", folder, kTensors, " has ", unknown.empty() ? "" : *unknown.begin(),
        ", for which this model has no layer; is it of another model?");
  check(!layers.empty(), "peft: ", folder, kTensors, " has no adapters");
  add_lora(model, layers, args, 0);
  for (size_t i = 0; i < layers.size(); ++i) {
    adapter_of(*layers[i])->a.assign(numbers[i].a);
    adapter_of(*layers[i])->b.assign(numbers[i].b);
  }
}

}  // namespace gradus
