#include "lessons/22_scoreboard/settings.h"

#include <algorithm>
#include <nlohmann/json.hpp>

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
        "; a setting is a text or a number");
  return "--" + name + "=" + (value.is_string() ? value.get<std::string>() : value.dump());
}

static std::string settings_in(const std::string& path) {
  const Metadata metadata = SafetensorsFile(path).metadata();
  const auto at = metadata.find("settings");
  check(at != metadata.end(), path, ": it does not say its settings, so it is no file of gradus train");
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

TrainSettings settings_of(Args& args, int64_t ranks) {
  TrainSettings s;
  Json used = Json::object();
  const auto note = [&](const char* name, const auto& x) { used[name] = x; };
  const auto text = [&](const char* name, std::string& x, const char* help) {
    x = args.text(name, x, help);
    if (!x.empty()) note(name, x);
  };
  const auto choice = [&](const char* name, std::string& x, const char* help,
                          const std::vector<std::string>& words) {
    note(name, x = args.choice(name, x, help, words));
  };
  const auto integer = [&](const char* name, int64_t& x, const char* help, int64_t least, int64_t most) {
    note(name, x = args.integer(name, x, help, least, most));
  };
  const auto number = [&](const char* name, double& x, const char* help, double least, double most) {
    note(name, x = args.number(name, x, help, least, most));
  };
  constexpr int64_t kMany = int64_t(1) << 30;
  text("data", s.data, "a text file, a folder of them, or a .grammar that writes text");
  integer("text-bytes", s.text_bytes, "bytes that a grammar writes", 1000, kMany);
  text("model", s.model, "gpt2, gpt2-xl, llama-2-7b, ... or gpt-LAYERSxCHANNELSxHEADS");
  integer("vocab", s.vocab, "rows of the token table; bytes need 256 (0: the model's own)", 0, kMany);
  integer("context", s.context, "tokens per sequence (0: the model's own)", 0, kMany);
  number("dropout", s.dropout, "probability", 0, 0.99);
  choice("blocks", s.blocks, "the model's own, or Llama's: RMS norm, SwiGLU, rotary positions, no biases",
         {"own", "llama"});
  choice("head", s.head, "output weights: the model's own way, the token table (tied), or their own (untied)",
         {"own", "tied", "untied"});
  integer("kv-heads", s.kv_heads, "heads of keys and values (0: all heads)", 0, 1 << 16);
  integer("mlp", s.mlp, "channels within the MLP (0: the model's own)", 0, kMany);
  integer("experts", s.experts, "MLPs per block, with --blocks=llama (0: one, for all tokens)", 0, 1 << 16);
  integer("chosen", s.chosen, "experts per token", 1, 1 << 16);
  number("capacity", s.capacity, "places per expert, relative to an even division (0: all)", 0, 1e6);
  number("balance", s.balance, "weight of the balance loss", 0, 1e3);
  text("weights", s.weights, "a file of weights to begin with, or of a saved run");
  integer("batch", s.batch, "sequences per step, of all ranks", 1, kMany);
  integer("micro-batches", s.micro_batches, "that a rank's part of the batch is divided into", 1, kMany);
  integer("steps", s.steps, "of the whole run", 1, kMany);
  integer("seed", s.seed, "of weights, data order and everything else random", 0, INT64_MAX);
  integer("workers", s.workers, "threads that make batches ahead of the loop", 0, 1024);
  choice("optimizer", s.optimizer,
         "adafactor-given: steps of the learning rate; nesterov: sgd with Nesterov's momentum",
         {"adamw", "adamw8bit", "adafactor", "adafactor-given", "muon", "sgd", "nesterov"});
  number("lr", s.learning_rate, "highest learning rate", 0, 1e6);
  number("last-lr", s.last_rate, "that of the last step", 0, 1e6);
  integer("warmup", s.warmup, "steps until the highest one", 0, kMany);
  number("clip", s.clip, "largest norm of all gradients (0: any)", 0, 1e9);
  number("weight-decay", s.weight_decay, "", 0, 1e3);
  number("beta2", s.beta2, "of AdamW, in 32 and in 8 bits, and Muon's", 0, 0.999999);
  number("momentum", s.momentum, "of sgd (0: none) and nesterov", 0, 0.999999);
  std::vector<std::string> recipes(std::begin(kRecipes), std::end(kRecipes));
  recipes.emplace_back("bf16");
  choice("precision", s.precision, "dtypes of weights, gradients, states", recipes);
  text("keep", s.keep, "of the blocks: store-all, selective, each-block, every-K, sqrt, from-the-start");
  choice("attention", s.attention, "kernel", {"plain", "flash"});
  integer("loss-rows", s.loss_rows, "logits of so many tokens at a time (0: all)", 0, kMany);
  integer("empty-every", s.empty_every, "give unused memory back after so many steps (0: never)", 0, kMany);
  choice("calls", s.calls, "of kernels: each by the program, replayed, or replayed and fused",
         {"each", "captured", "compiled"});
  integer("lora", s.lora, "rank of adapters (0: all weights train)", 0, kMany);
  number("lora-alpha", s.lora_alpha, "adapters add alpha/rank times their product", 0, 1e6);
  text("adapted", s.adapted, "layers with an adapter: a regular expression");
  choice("frozen", s.frozen, "weights of layers that do not train", {"kept", "4-bits"});
  note("ranks", ranks);
  integer("tensor-ranks", s.layout.tensor, "that share each layer", 1, 1024);
  integer("context-ranks", s.layout.context, "that share each sequence", 1, 1024);
  integer("pipeline-ranks", s.layout.pipeline, "that have some blocks each", 1, 1024);
  integer("zero", s.zero, "stage: 0 to 3; only data ranks: those that remain share the batch", 0, 3);
  integer("chunks", s.chunks, "of blocks per pipeline rank", 1, 1024);
  choice("tokens", s.tokens, "between the layers of tensor ranks: all, a part each, gathered again",
         {"whole", "parts", "again"});
  const int64_t other = s.layout.tensor * s.layout.context * s.layout.pipeline;
  check(ranks % other == 0, "--ranks=", ranks, ": tensor, context and pipeline ranks take ", other,
        "; it must be a multiple of that");
  s.layout.data = ranks / other;
  s.used = json_text(used);
  return s;
}

TransformerConfig config_of(const TrainSettings& s) {
  TransformerConfig c = transformer_config(s.model);
  check(c.output_head != OutputHead::Pooled && c.token_types == 0, "--model=", s.model,
        ": it does not predict the next token; take one like GPT-2, GPT-NeoX or Llama");
  if (s.vocab > 0) c.vocab = s.vocab;
  if (s.context > 0) c.context = s.context;
  check(c.vocab >= 256, "--vocab=", s.vocab, ": a token is a byte, so it takes 256 rows");
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
  if (!s.weights.empty()) {  // of a saved run, too: what else is in the file is left there
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
