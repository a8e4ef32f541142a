#include "lessons/22_scoreboard/settings.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lessons/08_checkpointing/policies.h"
#include "src/core/input_file.h"
#include "src/core/json.h"
#include "src/io/save_load.h"
#include "src/nn/lora.h"
#include "src/optim/adamw_8bit.h"
#include "src/optim/muon.h"
#include "src/tensor/context.h"

namespace gradus {

static std::string flag_of(const std::string& name, const ParsedJson& value) {
  check(value.is_string() || value.is_number(), name, " is ", Brief{value},
        "; a setting must be a string or a number");
  return "--" + name + "=" + (value.is_string() ? value.get<std::string>() : value.dump());
}

static std::string settings_in(const std::string& path) {
  const Metadata metadata = SafetensorsFile(path).metadata();
  const auto at = metadata.find("settings");
  check(at != metadata.end(), path, ": the file has no settings, so gradus train did not write it");
  return at->second;
}

std::vector<std::string> with_files(int argc, char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  for (const std::string from : {"--settings=", "--load="}) {
    const auto at = std::find_if(words.begin(), words.end(), [&](auto& w) { return w.starts_with(from); });
    if (at == words.end() || at->size() == from.size()) continue;
    const std::string path = at->substr(from.size());
    const auto is_given = [&](const std::string& name) {
      return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
        return word.substr(0, word.find('=')) == "--" + name;
      });
    };
    const std::string text = from == "--load=" ? settings_in(path) : read_text_file(path);
    try {
      parse_fields(text, 1000, [&](const std::string& name, ParsedJson& value) {
        if (!is_given(name)) words.push_back(flag_of(name, value));
      });
    } catch (const Error& e) {
      fail(path, ": the settings: ", e.what());
    }
  }
  return words;
}

namespace {

// Declares flags whose defaults are the fields of TrainSettings, and records their values in `used`.
struct FlagReader {
  Args& args;
  Json used = Json::object();
  void text(const char* name, std::string& x, const char* help) {
    x = args.text(name, x, help);
    if (!x.empty()) used[name] = x;
  }
  void choice(const char* name, std::string& x, const char* help, const std::vector<std::string>& words) {
    used[name] = x = args.choice(name, x, help, words);
  }
  void integer(const char* name, int64_t& x, const char* help, int64_t least, int64_t most) {
    used[name] = x = args.integer(name, x, help, least, most);
  }
  void number(const char* name, double& x, const char* help, double least, double most) {
    used[name] = x = args.number(name, x, help, least, most);
  }
};
constexpr int64_t kMany = int64_t(1) << 30;

void text_and_model(FlagReader& r, TrainSettings& s) {
  r.text("data", s.data, "a text file, a folder of text files, or a .grammar file that generates text");
  r.integer("text-bytes", s.text_bytes, "bytes of text that a grammar generates", 1000, kMany);
  r.text("model", s.model, "model: gpt2, gpt2-xl, llama-2-7b, ... or gpt-LAYERSxCHANNELSxHEADS");
  r.integer("vocab", s.vocab, "vocabulary size, at least 256 (0: the model's own)", 0, kMany);
  r.integer("context", s.context, "tokens per sequence (0: the model's own)", 0, kMany);
  r.number("dropout", s.dropout, "probability of dropout", 0, 0.99);
  r.choice("blocks", s.blocks, "own: the model's; llama: RMSNorm, SwiGLU, rotary embeddings, no biases",
           {"own", "llama"});
  r.choice("head", s.head,
           "weights of the output head: as in the model (own), the token table (tied), or separate (untied)",
           {"own", "tied", "untied"});
  r.integer("kv-heads", s.kv_heads, "heads of keys and values (0: as many as heads of queries)", 0, 1 << 16);
  r.integer("mlp", s.mlp, "hidden channels of the MLP (0: the model's own)", 0, kMany);
  r.integer("experts", s.experts, "experts per block, with --blocks=llama (0: one MLP for all tokens)", 0,
            1 << 16);
  r.integer("chosen", s.chosen, "experts that the router chooses per token", 1, 1 << 16);
  r.number("capacity", s.capacity, "capacity factor of the experts (0: a place for every token)", 0, 1e6);
  r.number("balance", s.balance, "weight of the balance loss", 0, 1e3);
}

void training(FlagReader& r, TrainSettings& s) {
  r.text("weights", s.weights, "initial weights: a file of weights, or a saved run");
  r.integer("batch", s.batch, "sequences per step, on all ranks together", 1, kMany);
  r.integer("micro-batches", s.micro_batches, "micro-batches per step and rank (gradient accumulation)", 1,
            kMany);
  r.integer("steps", s.steps, "training steps of the whole run", 1, kMany);
  r.integer("seed", s.seed, "seed of weights, data order and everything else random", 0, INT64_MAX);
  r.integer("workers", s.workers, "threads that prefetch batches (0: the training loop loads them)", 0, 1024);
  r.choice("optimizer", s.optimizer,
           "adafactor-given: Adafactor with --lr as its step size; nesterov: SGD with Nesterov momentum",
           {"adamw", "adamw8bit", "adafactor", "adafactor-given", "muon", "sgd", "nesterov"});
  r.number("lr", s.learning_rate, "peak learning rate, reached after the warm-up", 0, 1e6);
  r.number("last-lr", s.last_rate, "learning rate of the last step", 0, 1e6);
  r.integer("warmup", s.warmup, "warm-up steps, until the peak learning rate", 0, kMany);
  r.number("clip", s.clip, "largest gradient norm (0: no clipping)", 0, 1e9);
  r.number("weight-decay", s.weight_decay,
           "decoupled weight decay: a step subtracts this x learning rate x weight", 0, 1e3);
  r.number("beta2", s.beta2, "beta2 of AdamW, of 8-bit AdamW, and of Muon's AdamW", 0, 0.999999);
  r.number("momentum", s.momentum, "momentum of sgd (0: none) and nesterov", 0, 0.999999);
}

void memory_and_time(FlagReader& r, TrainSettings& s) {
  std::vector<std::string> recipes(std::begin(kRecipes), std::end(kRecipes));
  recipes.emplace_back("bf16");
  r.choice("precision", s.precision, "dtypes of weights, gradients and optimizer states", recipes);
  r.text("keep", s.keep,
         "checkpointing policy: store-all, selective, each-block, every-K, sqrt, from-the-start; "
         "auto: the fastest that fits into --memory");
  r.choice("attention", s.attention, "attention kernel", {"plain", "flash"});
  r.integer("loss-rows", s.loss_rows, "tokens whose logits are in memory at a time (0: all tokens)", 0,
            kMany);
  r.integer("empty-every", s.empty_every,
            "steps between two calls of empty_cache(), which releases cached memory (0: never)", 0, kMany);
  r.choice("calls", s.calls, "kernel calls: each by the program, or replayed, or replayed and fused",
           {"each", "captured", "compiled"});
  r.integer("lora", s.lora, "rank of the LoRA adapters (0: all weights are trained)", 0, kMany);
  r.number("lora-alpha", s.lora_alpha, "the output of an adapter is scaled by alpha / rank", 0, 1e6);
  r.text("adapted", s.adapted, "names of the layers with an adapter, as a regular expression");
  r.choice("frozen", s.frozen, "storage of frozen weights; 4-bits: NF4", {"kept", "4-bits"});
}

void ranks_of_each_kind(FlagReader& r, TrainSettings& s) {
  r.integer("tensor-ranks", s.layout.tensor, "ranks that divide each layer", 1, 1024);
  r.integer("context-ranks", s.layout.context, "ranks that divide each sequence", 1, 1024);
  r.integer("pipeline-ranks", s.layout.pipeline, "ranks that divide the blocks of the model", 1, 1024);
  r.integer("zero", s.zero, "stage of ZeRO on all other ranks, which divide the batch", 0, 3);
  r.integer("chunks", s.chunks, "chunks of blocks per pipeline rank", 1, 1024);
  r.choice("tokens", s.tokens, "parts: sequence parallelism; again: the same, gathered again in backward",
           {"whole", "parts", "again"});
}

}  // namespace

TrainSettings settings_of(Args& args, int64_t ranks) {
  TrainSettings s;
  FlagReader reader{args};
  text_and_model(reader, s);
  training(reader, s);
  memory_and_time(reader, s);
  reader.used["ranks"] = ranks;
  ranks_of_each_kind(reader, s);
  s.used = json_text(reader.used);
  const int64_t other = s.layout.tensor * s.layout.context * s.layout.pipeline;
  check(ranks % other == 0, "--ranks=", ranks, ": it must be a multiple of ", other,
        ", the product of tensor, context and pipeline ranks");
  check(s.chunks == 1 || s.layout.pipeline > 1, "--chunks=", s.chunks, " needs --pipeline-ranks");
  check(s.tokens == "whole" || s.layout.tensor > 1, "--tokens=", s.tokens, " needs --tensor-ranks");
  s.layout.data = ranks / other;
  return s;
}

TrainSettings settings_of(const std::string& flags) {
  std::map<std::string, std::string> values;  // by name
  std::istringstream words(flags);
  for (std::string word; words >> word;) values[word.substr(0, word.find('='))] = word;
  const auto ranks = values.extract("--ranks");
  std::vector<std::string> argv{"gradus"};
  for (const auto& [name, word] : values) argv.push_back(word);
  std::vector<char*> pointers;
  for (std::string& word : argv) pointers.push_back(word.data());
  Args args(int(pointers.size()), pointers.data(), "gradus", "settings from a string of flags");
  const TrainSettings s = settings_of(args, ranks ? std::stoll(ranks.mapped().substr(8)) : 1);
  args.done();
  return s;
}

TransformerConfig config_of(const TrainSettings& s) {
  TransformerConfig c = transformer_config(s.model);
  check(c.output_head != OutputHead::Pooled && c.token_types == 0, "--model=", s.model,
        ": it does not predict the next token; use a model like GPT-2, GPT-NeoX or Llama");
  if (s.vocab > 0) c.vocab = s.vocab;
  if (s.context > 0) c.context = s.context;
  check(c.vocab >= 256, "--vocab=", s.vocab, ": a token is a byte, so 256 is the minimum");
  c.dropout = s.dropout, c.loss_rows = s.loss_rows;
  if (s.blocks == "llama") {
    c.norm = NormKind::Rms, c.activation = swiglu, c.biases = false;
    c.rotary = c.channels / std::max<int64_t>(c.heads, 1), c.output_head = OutputHead::Untied;
  }
  if (s.head != "own") c.output_head = s.head == "tied" ? OutputHead::Tied : OutputHead::Untied;
  if (s.kv_heads > 0) c.kv_heads = s.kv_heads;
  if (s.mlp > 0) c.mlp_channels = s.mlp;
  if (s.experts > 0)
    c.experts = s.experts, c.chosen = s.chosen, c.capacity_factor = s.capacity, c.balance = s.balance;
  c.precision = s.precision == "bf16" ? uniform(DType::BF16) : precision_recipe(s.precision);
  if (s.attention == "flash") c.attention = attention_flash;
  return c;
}

void prepare(Transformer& model, const TrainSettings& s, const AssignValues& assign) {
  model.initialize(uint64_t(s.seed), assign);
  policy_by_name(s.keep, int64_t(model.blocks.size())).apply(model);
  if (!s.weights.empty()) {  // from a saved run only its weights are read
    const SafetensorsFile file(s.weights);
    for (Parameter& p : model.parameters) assign(p, read_numbers(file, p.name, p.value.shape()));
  }
  const DType compute = model.config.precision.value;
  if (s.lora > 0)
    add_lora(model, s.adapted,
             {.r = s.lora,
              .alpha = s.lora_alpha,
              .precision = compute == DType::F32 ? Precision{} : mixed(compute)},
             uint64_t(s.seed));
  if (s.frozen == "4-bits") quantize_frozen(model);
}

std::unique_ptr<Optimizer> optimizer_of(const TrainSettings& s, Parameters& parameters) {
  const auto decay = float(s.weight_decay);
  const AdamWArgs adamw{.beta2 = float(s.beta2), .weight_decay = decay};
  if (s.optimizer == "adamw8bit") return std::make_unique<AdamW8bit>(parameters, adamw);
  if (s.optimizer.starts_with("adafactor")) {
    AdafactorArgs args{.weight_decay = decay};
    if (s.optimizer == "adafactor-given") args.step_size = StepSize::Given;
    return std::make_unique<Adafactor>(parameters, args);
  }
  if (s.optimizer == "muon")
    return std::make_unique<Muon>(parameters, MuonArgs{.weight_decay = decay, .others = adamw});
  if (s.optimizer == "sgd" || s.optimizer == "nesterov")
    return std::make_unique<Sgd>(parameters, SgdArgs{float(s.momentum), decay, s.optimizer == "nesterov"});
  return std::make_unique<AdamW>(parameters, adamw);
}

void start_scaling(const TrainSettings& s) {
  if (config_of(s).precision.value == DType::F16) start_loss_scaling(current().device);
}

}  // namespace gradus
