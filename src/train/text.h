// Functions for lessons that train on text: the text and its entropy floor, batches, evaluation, sampling,
// the loss curve.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/data/corpus.h"
#include "src/data/loader.h"
#include "src/data/tokenizer.h"
#include "src/nn/transformer.h"

namespace gradus {

struct Text {
  Corpus corpus;
  std::optional<double> floor;  // nats per byte of the held-out text under the grammar that generated it
  std::string prompt;           // the sample continues this
};
// `bytes` bytes from a grammar of the data folder.
Text generated_text(const std::string& grammar, int64_t bytes, uint64_t seed);
// From the file or folder `path`; if `path` is empty, `bytes` bytes from steps.grammar.
Text load_text(const std::string& path, int64_t bytes, uint64_t seed);

// Prints the sizes of the training and the held-out text, and how much of a long held-out text is scored.
void print_sizes(const Corpus& corpus, const Loader& loader);

// Fills inputs and targets (B, T) with the windows of training step `step`.
void read_batch(const Loader& loader, int64_t step, Tensor& inputs, Tensor& targets);

// Mean loss in nats per held-out byte. Each byte (of a long text, each byte that the loader draws) is scored
// once, with at least T/2 bytes of context.
double held_out_loss(const Transformer& model, const Loader& loader, int64_t batch);

// Continues `prompt` by `bytes` bytes, sampled from softmax(logits / temperature).
std::string sample_text(const Transformer& model, const std::string& prompt, int64_t bytes,
                        double temperature, uint64_t seed);

// Draws the loss per training step, the held-out loss and the floor.
void draw_curve(const std::vector<double>& losses, double held_out, std::optional<double> floor,
                const std::string& path);

}  // namespace gradus
