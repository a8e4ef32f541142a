// Files that are loaded into a model: training, whole and sharded, and adapters with their configuration. A
// file fits and is loaded, or it is rejected with a message and the model is unchanged.
#include <filesystem>
#include <fstream>

#include "src/io/peft.h"
#include "src/optim/optimizer.h"
#include "src/parallel/comm/cluster.h"
#include "src/parallel/sharded_file.h"
#include "src/parallel/zero.h"
#include "tests/fuzz/fuzz.h"

namespace gradus::fuzz {
namespace {

constexpr const char* kFolder = "adapters";
constexpr const char* kFile = "adapters/adapter_model.safetensors";
constexpr const char* kConfig = "adapters/adapter_config.json";

TransformerConfig config() {
  TransformerConfig c = transformer_config("gpt2");
  c.vocab = 5, c.context = 4, c.layers = 1, c.heads = 1, c.channels = 4;
  return c;
}

void put(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(kFolder);
  std::ofstream(path, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
}
std::string get(const std::string& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

// Files that the library writes: one of training, and the two of adapters, separated by a zero byte.
struct Written {
  std::string training, adapters;
  Written() {
    const Context context("cpu");
    Transformer model(config());
    model.initialize(1);
    AdamW optimizer(model.parameters);
    std::filesystem::create_directories(kFolder);
    save_training(kFile, model.parameters, optimizer);
    training = get(kFile);
    Transformer adapted(config());
    adapted.initialize(1);
    add_lora(adapted, ".*c_attn", {.r = 2}, 1);
    save_adapters(kFolder, adapted);
    adapters = get(kConfig) + std::string(1, '\0') + get(kFile);
  }
};
const Written& written() {
  static const Written files;
  return files;
}

std::vector<double> values_of(const Parameters& parameters) {
  std::vector<double> all;
  for (const Parameter& p : parameters)
    if (!p.value.storage().dropped())
      for (const double v : to_host<double>(p.kept())) all.push_back(v);
  return all;
}

// Calls `load`; after an Error the parameters are unchanged.
template <class Load>
void load_or_change_nothing(const Parameters& parameters, const Load& load) {
  const std::vector<double> before = values_of(parameters);
  try {
    load();
  } catch (const Error& e) {
    EXPECT_GT(std::strlen(e.what()), 10u) << e.what();
    EXPECT_EQ(values_of(parameters), before) << e.what();
  }
}

void load_whole() {
  const Context context("cpu");
  Transformer model(config());
  model.initialize(2);
  AdamW optimizer(model.parameters);
  load_or_change_nothing(model.parameters, [&] { load_training(kFile, model.parameters, optimizer); });
}
void load_parts() {
  run_cluster({.ranks = 2}, [](Comm& comm) {
    Transformer model(config(), Allocate::Later);
    Zero zero(comm, model.parameters, {.stage = 2});
    model.initialize(2, [&](Parameter& p, const auto& values) { zero.assign(p, values); });
    AdamW optimizer(zero.shards);
    load_or_change_nothing(zero.shards, [&] { load_sharded(kFile, comm, zero.shards, optimizer); });
  });
}
void load_small() {
  const Context context("cpu");
  Transformer model(config());
  model.initialize(2);
  load_or_change_nothing(model.parameters, [&] { load_adapters(kFolder, model); });
}

}  // namespace

// The first byte selects the kind of file.
std::string sample(Rng& rng) {
  const uint64_t kind = rng.below(3);
  std::string file = kind < 2 ? written().training : written().adapters;
  constexpr const char* kNumbers[] = {"9223372036854775807", "-1",   "1e300", "3.9", "0",
                                      "2000000000",          "null", "\"\""};
  for (uint64_t n = rng.below(3); n > 0; --n) {  // replaces a number in the text at the beginning
    const size_t at = file.find_first_of("0123456789", 8 + rng.below(std::min<size_t>(file.size(), 2000)));
    if (at == file.npos) break;
    const size_t end = file.find_first_not_of("0123456789", at);
    file.replace(at, end - at, one_of(rng, kNumbers));
  }
  return char(kind) + file;
}

}  // namespace gradus::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace gradus::fuzz;
  if (size == 0) return 0;
  const std::string input(bytes + 1, bytes + size);
  const uint8_t kind = bytes[0] % 3;
  const size_t zero = kind == 2 ? std::min(input.find('\0'), input.size()) : 0;
  if (kind == 2) put(kConfig, input.substr(0, zero));
  put(kFile, kind == 2 ? input.substr(std::min(zero + 1, input.size())) : input);
  kind == 0 ? load_whole() : kind == 1 ? load_parts() : load_small();
  return 0;
}
