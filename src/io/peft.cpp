#include "src/io/peft.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "src/core/json.h"
#include "src/io/atomic_file.h"
#include "src/io/safetensors.h"
#include "src/tensor/context.h"

namespace gradus {

constexpr const char *kTensors = "/adapter_model.safetensors", *kConfig = "/adapter_config.json",
                     *kPrefix = "base_model.model.", *kA = ".lora_A.weight", *kB = ".lora_B.weight";

// The linear layers of a block: our name, GPT-NeoX's. GPT-2's are ours.
constexpr std::pair<const char*, const char*> kLayers[] = {{"attn.c_attn", "attention.query_key_value"},
                                                           {"attn.c_proj", "attention.dense"},
                                                           {"mlp.c_fc", "mlp.dense_h_to_4h"},
                                                           {"mlp.c_proj", "mlp.dense_4h_to_h"}};

static bool is_neox(const TransformerConfig& c) { return c.residual == Residual::Parallel; }

// Of a layer "h.0.attn.c_attn" the module that PEFT adapts.
static std::string module_of(const TransformerConfig& c, const std::string& layer) {
  check(c.residual != Residual::PostNorm,
        "peft: adapters of BERT have no names here; there are those of GPT-2 and "
        "GPT-NeoX");
  if (!is_neox(c)) return "transformer." + layer;
  const size_t dot = layer.find('.', 2);
  for (const auto& [ours, theirs] : kLayers)
    if (layer.substr(dot + 1) == ours) return "gpt_neox.layers." + layer.substr(2, dot - 2) + "." + theirs;
  fail("peft: ", layer, " has no name in GPT-NeoX");
}

// Rows of q, k and v: here q of all heads, then k, then v; in GPT-NeoX q, k and v of the first head, ...
static std::vector<int64_t> rows_by_head(const TransformerConfig& c) {
  const int64_t D = c.channels / c.heads;
  std::vector<int64_t> ours;  // for each of their rows
  for (int64_t h = 0; h < c.heads; ++h)
    for (int64_t part = 0; part < 3; ++part)
      for (int64_t d = 0; d < D; ++d) ours.push_back(part * c.channels + h * D + d);
  return ours;
}
static bool is_by_head(const TransformerConfig& c, const Linear& l) {
  return is_neox(c) && l.name.ends_with("attn.c_attn");
}

static std::vector<float> in_their_order(const TransformerConfig& c, const Linear& l) {
  const Tensor& b = l.lora->b.kept();
  const std::vector<float> values = to_host<float>(b);
  if (!is_by_head(c, l)) return values;
  const int64_t r = b.last();
  std::vector<float> theirs;
  for (const int64_t row : rows_by_head(c))
    theirs.insert(theirs.end(), &values[size_t(row * r)], &values[size_t(row * r)] + r);
  return theirs;
}
static std::vector<double> in_our_order(const TransformerConfig& c, const Linear& l,
                                        const std::vector<double>& theirs) {
  if (!is_by_head(c, l)) return theirs;
  const size_t r = theirs.size() / size_t(3 * c.channels);
  std::vector<double> values(theirs.size());
  size_t at = 0;
  for (const int64_t row : rows_by_head(c)) {
    std::copy_n(&theirs[at], r, &values[size_t(row) * r]);
    at += r;
  }
  return values;
}

static Json config_of(const Transformer& model, const Linear& l, const std::vector<std::string>& modules,
                      const std::string& base) {
  return {{"peft_type", "LORA"},
          {"task_type", "CAUSAL_LM"},
          {"base_model_name_or_path", base},
          {"inference_mode", true},
          {"r", l.lora->a.value.shape()[0]},
          {"lora_alpha", l.lora->alpha},
          {"lora_dropout", l.lora->dropout},
          {"fan_in_fan_out", !is_neox(model.config)},  // of GPT-2's own weights: (in, out)
          {"bias", "none"},
          {"target_modules", modules}};
}

void save_adapters(const std::string& folder, Transformer& model, const std::string& base) {
  std::vector<std::string> modules;
  std::deque<std::vector<float>> numbers;
  std::vector<TensorEntry> entries;
  const Linear* one = nullptr;
  for (const Linear* l : model.linears()) {
    if (!l->lora) continue;
    one = l;
    modules.push_back(module_of(model.config, l->name));
    const std::string name = kPrefix + modules.back();
    numbers.push_back(to_host<float>(l->lora->a.kept()));
    entries.push_back({name + kA, DType::F32, l->lora->a.value.shape(), numbers.back().data()});
    numbers.push_back(in_their_order(model.config, *l));
    entries.push_back({name + kB, DType::F32, l->lora->b.value.shape(), numbers.back().data()});
  }
  check(one != nullptr, "peft: ", folder, " cannot be written: the model has no adapters");
  make_folder_of(folder + kTensors);
  write_safetensors(folder + kTensors, entries, {{"format", "pt"}});
  write_file(
      folder + kConfig,
      config_of(model, *one, modules, base).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

// What the folder's configuration says; refuses what would compute something else than plain LoRA.
static LoraArgs read_config(const std::string& path) {
  const InputFile file(path);
  std::string text(size_t(file.bytes()), '\0');
  file.read(0, file.bytes(), text.data(), "the configuration");
  try {
    const Json config = parse_json(text);
    check(config.is_object() && config.value("peft_type", "") == "LORA", "its peft_type is not LORA");
    check(config.value("bias", "none") == "none", "biases were trained, too");
    for (const char* other : {"use_dora", "use_rslora", "modules_to_save", "rank_pattern", "alpha_pattern"})
      if (const auto found = config.find(other); found != config.end())
        check(found->empty() || *found == false, "it has ", other, ", which gradus lacks");
    const auto r = config.at("r").get<int64_t>();
    check(r >= 1, "its r is ", r);
    return {
        .r = r, .alpha = config.at("lora_alpha").get<double>(), .dropout = config.value("lora_dropout", 0.0)};
  } catch (const Error& e) {
    fail("peft: ", path, ": ", e.what());
  } catch (const Json::exception& e) {
    fail("peft: ", path, ": ", e.what());
  }
}

// A tensor of floating numbers, of any such type.
static std::vector<double> read_numbers(const SafetensorsFile& file, const std::string& name,
                                        const Shape& shape) {
  const DType dtype = file.find(name)->dtype;
  visit_float("peft", dtype, []<class T>() {});  // refuses codes and counts
  Tensor t(current().device, shape, dtype, Kind::Temporary, name);
  std::vector<char> bytes(size_t(t.bytes()));
  file.read(name, dtype, shape, bytes.data());
  t.device().copy_in(t.set().p, bytes.data(), t.bytes());
  return to_host<double>(t);
}

void load_adapters(const std::string& folder, Transformer& model, const Precision& precision) {
  LoraArgs args = read_config(folder + kConfig);
  args.precision = precision;
  const SafetensorsFile file(folder + kTensors);
  struct Read {
    Linear* layer;
    std::vector<double> a, b;
  };
  std::vector<Read> adapters;
  std::string names;
  std::set<std::string> unknown;
  for (const SafetensorsFile::Tensor& t : file.tensors()) unknown.insert(t.name);
  for (Linear* l : model.linears()) {
    const std::string name = kPrefix + module_of(model.config, l->name), a = name + kA, b = name + kB;
    if (unknown.erase(a) + unknown.erase(b) == 0) continue;
    check(file.find(a) && file.find(b), "peft: ", folder, kTensors, " has only one of ", a, " and ", b);
    const Shape& w = l->weight.value.shape();
    adapters.push_back({l, read_numbers(file, a, {args.r, w[1]}),
                        in_our_order(model.config, *l, read_numbers(file, b, {w[0], args.r}))});
    names += (names.empty() ? "" : "|") + l->name;
  }
  check(unknown.empty(), "peft: ", folder, kTensors, " has ", unknown.empty() ? "" : *unknown.begin(),
        ", for which this model has no layer; is it of another model?");
  check(!adapters.empty(), "peft: ", folder, kTensors, " has no adapters");
  add_lora(model, names, args, 0);
  for (const Read& read : adapters) {
    read.layer->lora->a.assign(read.a);
    read.layer->lora->b.assign(read.b);
  }
}

}  // namespace gradus
