// Trains small GPT-, BERT- and NeoX-shaped models with AdamW in fp32 and with its states in 8 bits (v rounded
// to the nearest code, or up), and measures how far single updates move single weights. Prints one JSON line
// per model: the moves, and the mean loss of the last 10 steps over some seeds, of each optimizer.
#include <iostream>
#include <nlohmann/json.hpp>

#include "lessons/11_adam8bit/quantized_adamw.h"
#include "src/core/args.h"
#include "src/train/lesson.h"
#include "tests/optim/adam8bit_moves.h"

using namespace gradus;

struct NamedOptimizer {
  const char* name;
  MakeOptimizer make;
};
static const std::vector<NamedOptimizer>& optimizers() {
  static const std::vector<NamedOptimizer> all{
      {"fp32", [](Parameters& p) { return std::make_unique<AdamW>(p); }},
      {"nearest codes",
       [](Parameters& p) { return std::make_unique<QuantizedAdamW>(p, state_formats()[3]); }},
      {"AdamW8bit", [](Parameters& p) { return std::make_unique<AdamW8bit>(p); }}};
  return all;
}

static nlohmann::ordered_json measure(const MovesCase& c, const NamedOptimizer& by, int64_t seeds) {
  Moves moves, shadow;
  std::vector<double> losses;
  for (int64_t seed = 1; seed <= seeds; ++seed) {
    const TrainedMoves t = train_moves(c, uint64_t(seed), by.make, true);
    moves.add(t.moves), shadow.add(t.shadow);
    losses.push_back(t.last_loss);
  }
  return {{"largest", moves.largest},
          {"above_4_of_100000", moves.above_4_of_100000()},
          {"above_8", moves.above_8},
          {"fp32_same_gradients", shadow.largest},
          {"loss", std::accumulate(losses.begin(), losses.end(), 0.0) / double(seeds)},
          {"losses", losses}};
}

static int bench_moves(int argc, char** argv) {
  Args args(argc, argv, "adam8bit_moves", "how far 8-bit Adam moves weights, compared with fp32");
  const int64_t steps = args.integer("steps", 200, "steps of each run", 10, 1 << 20);
  const int64_t seeds = args.integer("seeds", 4, "runs of each model", 1, 100);
  const int64_t layers = args.integer("layers", 2, "blocks of each model", 1, 100);
  const int64_t channels = args.integer("dim", 64, "channels of each model", 8, 4096);
  const int64_t batches = args.integer("batches", 0, "different batches; 0: one per step", 0, 1 << 20);
  const std::string only = args.text("shape", "", "gpt, bert or neox; by default all three");
  const int64_t only_vocab = args.integer("vocab", 0, "257, 1000, 8000; 0: all three", 0, 1 << 20);
  const std::string by = args.text("optimizer", "", "fp32, nearest codes, AdamW8bit; by default all three");
  args.done();
  for (const int64_t vocab : {257, 1000, 8000})
    for (const char* shape : {"gpt", "bert", "neox"})
      for (const bool tied : {true, false}) {
        if ((!only.empty() && only != shape) || (only_vocab && only_vocab != vocab)) continue;
        MovesCase c{.shape = shape, .vocab = vocab, .tied = tied, .steps = steps};
        c.layers = layers, c.channels = channels, c.batches = batches;
        nlohmann::ordered_json line{{"model", c.name()}};
        for (const NamedOptimizer& each : optimizers())
          if (by.empty() || by == each.name) line[each.name] = measure(c, each, seeds);
        std::cout << line.dump() << std::endl;
      }
  return 0;
}

int main(int argc, char** argv) {
  return run_lesson([&] { return bench_moves(argc, argv); });
}
