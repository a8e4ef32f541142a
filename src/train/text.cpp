#include "src/train/text.h"

#include <cmath>
#include <iostream>
#include <numeric>

#include "src/core/progress.h"
#include "src/core/rng.h"
#include "src/core/table.h"
#include "src/io/atomic_file.h"
#include "src/io/plot.h"
#include "src/tensor/profile_range.h"

namespace gradus {

Text generated_text(const std::string& name, int64_t bytes, uint64_t seed) {
  const std::string file = find_data_file(name);
  const Grammar grammar = Grammar::parse(read_text_file(file), file);
  Text text{generate_corpus(grammar, seed, bytes), std::nullopt, "\n"};
  const std::string_view held_out = text.corpus.held_out();
  text.floor = -grammar.log_probability(held_out) / double(held_out.size());
  return text;
}

Text load_text(const std::string& path, int64_t bytes, uint64_t seed) {
  if (!path.empty()) return {load_corpus(path), std::nullopt, "\n"};
  return generated_text("steps.grammar", bytes, seed);
}

void print_sizes(const Corpus& corpus, const Loader& loader) {
  std::cout << corpus.summary << "\n";
  const int64_t scored = loader.scored_tokens();
  if (scored < int64_t(corpus.held_out().size()))
    std::cout << "scored: " << count_text(scored) << " of the held-out bytes, evenly drawn over them\n";
}

static void copy_ids(Tensor& to, const std::vector<int32_t>& ids) {
  to.device().copy_in(to.set().p, ids.data(), to.bytes());
}

void read_batch(const Loader& loader, int64_t step, Tensor& inputs, Tensor& targets) {
  const ProfileRange range("data");
  std::vector<int32_t> x(inputs.numel()), y(targets.numel());
  loader.train_windows(step, 0, inputs.shape()[0], x.data(), y.data());
  copy_ids(inputs, x);
  copy_ids(targets, y);
}

// -log p of the target under a row of logits, as cross_entropy computes it, on the host.
static double nats(const float* logits, int64_t vocab, int32_t target) {
  const float max = *std::max_element(logits, logits + vocab);
  double sum = 0;
  for (int64_t v = 0; v < vocab; ++v) sum += std::exp(double(logits[v] - max));
  return std::log(sum) + max - logits[target];
}

double held_out_loss(const Transformer& model, const Loader& loader, int64_t batch) {
  const Evaluation evaluation;
  const int64_t T = model.config.context, V = model.config.vocab, windows = loader.held_out_windows();
  Tensor inputs(current().device, {batch, T}, DType::I32, Kind::Data, "held-out inputs");
  std::vector<int32_t> x(batch * T), y(batch * T);
  double total = 0;
  int64_t scored = 0;
  Progress progress("held-out text", windows);
  for (int64_t first = 0; first < windows; first += batch) {
    const std::vector<int64_t> count = loader.held_out_windows(first, batch, x.data(), y.data());
    copy_ids(inputs, x);
    const std::vector<float> logits = to_host<float>(model.logits(inputs));
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t t = T - count[b]; t < T; ++t) {
        total += nats(&logits[(b * T + t) * V], V, y[b * T + t]);
        ++scored;
      }
    progress.step(std::min(first + batch, windows), total / double(scored));
  }
  progress.done();
  return total / double(scored);
}

std::string sample_text(const Transformer& model, const std::string& prompt, int64_t bytes,
                        double temperature, uint64_t seed) {
  const Evaluation evaluation;
  Rng rng(seed, 0x5A);
  std::vector<int32_t> ids = ByteTokenizer::encode(prompt);
  for (int64_t i = 0; i < bytes; ++i) {
    const int64_t T = std::min<int64_t>(int64_t(ids.size()), model.config.context);
    const std::vector<int32_t> window(ids.end() - T, ids.end());
    const Tensor x = from_host(current().device, window, {1, T}, DType::I32, Kind::Data, "prompt");
    const Tensor last = model.logits(x).reshape({T, model.config.vocab}).narrow(T - 1, 1);
    const std::vector<float> p = to_host<float>(softmax(scale(last, 1 / temperature)));
    double u = rng.uniform();
    int32_t next = 0;
    while (next + 1 < int32_t(p.size()) && (u -= p[next]) >= 0) ++next;
    ids.push_back(next);
  }
  return ByteTokenizer::decode(ids);
}

void draw_curve(const std::vector<double>& losses, double held_out, std::optional<double> floor,
                const std::string& path) {
  std::vector<double> steps(losses.size());
  std::iota(steps.begin(), steps.end(), 0.0);
  LinePlot plot{"Loss per step", "step", "nats per byte", {}, {}};
  plot.series.push_back({"training loss", steps, losses});
  const double last = double(losses.size()) - 1;
  plot.series.push_back({"held-out loss: " + number_text(held_out), {0, last}, {held_out, held_out}});
  if (floor) plot.references.push_back({"entropy floor", *floor});
  write_file(path, draw(plot));
  std::cout << "loss curve: " << path << "\n";
}

}  // namespace gradus
