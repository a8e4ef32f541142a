#include "lessons/09_mixed_precision/underflow.h"

#include <algorithm>
#include <cmath>
#include <iostream>

#include "lessons/07_accumulation/ways.h"
#include "lessons/09_mixed_precision/recipes.h"
#include "src/core/table.h"
#include "src/data/tokenizer.h"
#include "src/io/atomic_file.h"
#include "src/io/plot.h"
#include "src/optim/optimizer.h"

namespace gradus {

static TransformerConfig with(Precision precision, TransformerConfig config) {
  config.precision = precision;
  return config;
}
// A copy of a model in a different precision, with its weights rounded.
struct RoundedModel : Transformer {
  RoundedModel(Precision precision, const Transformer& trained)
      : Transformer(with(precision, trained.config)) {
    auto from = trained.parameters.begin();
    for (Parameter& p : parameters) copy_from_host(p.value, to_host<double>((from++)->value));
  }
};

static std::vector<double> numbers_of(const Parameters& parameters,
                                      const Tensor& (*tensor)(const Parameter&)) {
  std::vector<double> all;
  for (const Parameter& p : parameters)
    for (const double x : to_host<double>(tensor(p))) all.push_back(x);
  return all;
}
static int64_t changed_numbers(const std::vector<double>& before, const std::vector<double>& after) {
  int64_t changed = 0;
  for (size_t i = 0; i < before.size(); ++i) changed += after[i] != before[i];
  return changed;
}
static const Tensor& weight(const Parameter& p) { return p.value; }
static const Tensor& gradient(const Parameter& p) { return p.leaf.grad; }

std::vector<double> weight_gradients(const std::string& recipe, double scale, const Transformer& trained,
                                     const TextBatch& batch, int64_t micro_batches) {
  Context context(current().device.name(), current().seed);
  RoundedModel model(precision_recipe(recipe), trained);
  if (scale != 1) start_loss_scaling(context.device, float(scale));
  accumulate(model, batch, even_split(batch.sequences, micro_batches));
  std::vector<double> all = numbers_of(model.parameters, gradient);
  for (double& g : all) g /= scale;
  return all;
}

// Attention whose input, queries, keys and values (B,T,3C), has a gradient of its own.
struct LeafAttention : AttentionVariant {
  Leaf& leaf;
  explicit LeafAttention(Leaf& l) : leaf(l) {}
  Tensor operator()(const Tensor& qkv, const TransformerConfig& c) const override {
    Tensor x = qkv;
    attach(x, leaf, "qkv");
    return attention_plain(x, c.heads, c.mask, c.dropout);
  }
};

std::vector<double> activation_gradients(Activation which, const std::string& recipe, double scale,
                                         const Transformer& trained, const TextBatch& micro,
                                         int64_t targets) {
  Context context(current().device.name(), current().seed);
  Device& device = context.device;
  RoundedModel model(precision_recipe(recipe), trained);
  const Tensor ids = on_device(micro.ids, micro.T, "inputs"),
               expected = on_device(micro.targets, micro.T, "targets"),
               count = from_host(device, std::vector<double>{double(targets)}, {}, DType::F32, Kind::Data,
                                 "count");
  Leaf leaf;
  if (which == Activation::Queries) model.blocks[0].attention = std::make_unique<LeafAttention>(leaf);
  if (scale != 1) start_loss_scaling(device, float(scale));
  Tape tape;
  Tensor logits = model.logits(ids);
  if (which == Activation::Logits) attach(logits, leaf, "logits");
  tape.backward(cross_entropy(logits, expected, count));
  const auto C = size_t(model.config.channels);
  std::vector<double> all = to_host<double>(leaf.grad), wanted;
  for (size_t i = 0; i < all.size(); ++i)
    if (which == Activation::Logits || i % (3 * C) < C) wanted.push_back(all[i] / scale);
  return wanted;
}

std::vector<double> of_tokens(bool occur, const std::string& text, const std::vector<double>& logits) {
  std::vector<bool> occurs(ByteTokenizer::kVocabulary);
  for (const char c : text) occurs[uint8_t(c)] = true;
  std::vector<double> some;
  for (size_t i = 0; i < logits.size(); ++i)
    if (occurs[i % occurs.size()] == occur) some.push_back(logits[i]);
  return some;
}

double share_lost(const std::vector<double>& exact, const std::vector<double>& g) {
  int64_t there = 0, lost = 0;
  // BEGIN SOLUTION 09.2
  for (size_t i = 0; i < exact.size(); ++i) {
    there += exact[i] != 0;
    lost += exact[i] != 0 && g[i] == 0;
  }
  // STUB: todo("09.2", "count the numbers other than 0, and those of them that are lost", exact, g, there, lost);
  // END SOLUTION 09.2
  return double(lost) / double(there);
}

static double length(const std::vector<double>& g) {
  double squares = 0;
  for (const double x : g) squares += x * x;
  return std::sqrt(squares);
}

// The distribution of log2 |g|, in % of all elements of g.
static Series histogram(const std::string& name, const std::vector<double>& g) {
  constexpr int kFirst = -48, kLast = -12;
  std::vector<double> share(kLast - kFirst + 1);
  for (const double x : g)
    if (x != 0 && std::isfinite(x))
      share[size_t(std::clamp(std::ilogb(x), kFirst, kLast) - kFirst)] += 100 / double(g.size());
  Series series{name, {}, share, Series::Marks::LineAndDots};
  for (int e = kFirst; e <= kLast; ++e) series.x.push_back(e + 0.5);
  return series;
}

// The gradients of activations in part (b).
struct Gradients {
  std::vector<double> occur, absent, queries;
};
static void draw_sizes(const Gradients& g, const std::string& path) {
  LinePlot plot{"Sizes of gradients in fp32",
                "log2 of the absolute value",
                "% of the elements, per power of two",
                {histogram("logits, bytes in the text", g.occur),
                 histogram("logits, bytes not in the text", g.absent), histogram("queries", g.queries)},
                {}};
  double top = 0;
  for (const Series& s : plot.series) top = std::max(top, *std::max_element(s.y.begin(), s.y.end()));
  for (const double scale : {1.0, 0x1p16}) {
    const double limit = std::log2(0x1p-25 / scale);
    // Not quite vertical: the plot would mark two points in one column of pixels by dots.
    plot.series.push_back(
        {"underflow limit, loss scale " + number_text(scale), {limit, limit + 0.05}, {0, top}});
  }
  write_file(path, draw(plot));
}

void underflow_table(const Transformer& trained, int64_t steps, const std::string& text,
                     const TextBatch& batch, int64_t micro_batches, const std::string& picture,
                     Report& report) {
  const TextBatch micro = batch.part(0, batch.sequences / micro_batches);
  const auto of_activations = [&](const std::string& recipe, double scale) {
    const auto of = [&](Activation which) {
      return activation_gradients(which, recipe, scale, trained, micro, batch.counted());
    };
    const std::vector<double> logits = of(Activation::Logits);
    return Gradients{of_tokens(true, text, logits), of_tokens(false, text, logits), of(Activation::Queries)};
  };
  const auto of_weights = [&](const std::string& recipe, double scale) {
    return weight_gradients(recipe, scale, trained, batch, micro_batches);
  };
  const Gradients exact = of_activations("fp32", 1);
  const std::vector<double> weights = of_weights("fp32", 1);
  Table table({"loss scale", "logits, bytes in text", "logits, bytes not in text", "queries",
               "weights: relative norm", "weights: relative difference", "weights: not finite"});
  std::vector<Underflow> scales;
  for (const double scale : {1.0, 0x1p8, 0x1p16, 0x1p24}) {
    const Gradients g = of_activations("mixed-fp16", scale);
    const std::vector<double> w = of_weights("mixed-fp16", scale);
    const Underflow u{scale, share_lost(exact.occur, g.occur), share_lost(exact.absent, g.absent),
                      share_lost(exact.queries, g.queries), distance(w, weights)};
    scales.push_back(u);
    const auto bad = std::count_if(w.begin(), w.end(), [](double x) { return !std::isfinite(x); });
    table.row({number_text(scale), percent_text(u.occur), percent_text(u.absent), percent_text(u.queries),
               number_text(length(w) / length(weights)), number_text(u.weights), std::to_string(bad)});
  }
  std::cout << "\n(b) Gradients in fp16, batch of " << batch.counted()
            << " targets: share that becomes 0 (logits, queries); gradient of all " << weights.size()
            << " weights compared with fp32\n\n"
            << table;
  draw_sizes(exact, picture);
  check_underflow(batch.counted(), steps, scales, report);
}

void check_underflow(int64_t targets, int64_t steps, const std::vector<Underflow>& scales, Report& report) {
  const std::string skip = targets < kLargeBatch ? "is for large batches" : needs_steps(20, steps);
  const Underflow &none = scales[0], &good = scales[2];
  const std::string zero = ": gradients that become 0, ", without = "(b) loss scale 1" + zero,
                    with = "(b) loss scale 65536" + zero;
  report.check_at_least(without + "logits of bytes not in the text", none.absent, 0.5, skip);
  report.check_at_least(without + "queries", none.queries, 0.1, skip);
  report.check_at_most(with + "logits of bytes in the text", good.occur, 0.01, skip);
  report.check_at_most(with + "logits of bytes not in the text", good.absent, 0.01, skip);
  report.check_at_most(with + "queries", good.queries, 0.01, skip);
  report.check_at_most("(b) loss scale 65536: gradient of the weights, relative difference from fp32",
                       good.weights, 0.02, skip);
}

std::vector<ScaledUpdate> scaled_updates(const Transformer& trained, const TextBatch& batch) {
  Context context(current().device.name(), current().seed);
  Device& device = context.device;
  RoundedModel model(precision_recipe("mixed-fp16"), trained);
  start_loss_scaling(device, 0x1p25f, 4);
  AdamW optimizer(model.parameters);
  std::vector<ScaledUpdate> updates;
  for (int step = 0; step < 12; ++step) {
    const std::vector<double> before = numbers_of(model.parameters, weight);
    context.end_attempt();  // adjusts the scale after the previous step
    const float scale = device.scalars().loss_scale;
    model.parameters.zero_grad();
    accumulate(model, batch, {batch.sequences});
    optimizer.clip_grad_norm(1.0);
    optimizer.step(1e-3);
    const int64_t changed = changed_numbers(before, numbers_of(model.parameters, weight));
    updates.push_back({scale, changed, int64_t(before.size()), optimizer.scalars().skip != 0});
  }
  return updates;
}

void scale_table(const std::vector<ScaledUpdate>& updates, int64_t steps, Report& report) {
  std::vector<std::string> header{"step"}, scales{"log2(loss scale)"}, changes{"weights changed, %"};
  int64_t skipped = 0, changed_by_skipped = 0, made = 0;
  for (const ScaledUpdate& u : updates) {
    header.push_back(std::to_string(header.size() - 1));
    scales.push_back(std::to_string(std::ilogb(u.scale)));
    changes.push_back(number_text(std::round(100 * double(u.changed) / double(u.weights))));
    if (u.skipped)
      ++skipped, changed_by_skipped += u.changed;
    else
      made += u.changed > 0;
  }
  Table table(header);
  table.row(scales), table.row(changes);
  std::cout << "\n(c) Dynamic loss scale: starts too high, is doubled after 4 updates in a row\n\n" << table;
  report.check_at_least("(c) skipped updates", double(skipped), 1, needs_steps(20, steps));
  report.check_at_least("(c) updates that changed weights", double(made), 1);
  report.check_equal("(c) weights changed by skipped updates", changed_by_skipped, 0);
}

double share_unchanged(DType t, double learning_rate, const Transformer& trained, const TextBatch& batch) {
  Context context(current().device.name(), current().seed);
  RoundedModel model({t, DType::F32, DType::F32, false}, trained);
  const std::vector<double> before = numbers_of(model.parameters, weight);
  AdamW optimizer(model.parameters);
  accumulate(model, batch, {batch.sequences});
  optimizer.step(learning_rate);
  const std::vector<double> after = numbers_of(model.parameters, weight);
  return 1 - double(changed_numbers(before, after)) / double(before.size());
}

std::vector<Unchanged> unchanged_weights(const Transformer& trained, const TextBatch& batch) {
  std::vector<Unchanged> rates;
  for (const double rate : {1e-3, 1e-4, 1e-5}) {
    const auto share = [&](DType t) { return share_unchanged(t, rate, trained, batch); };
    rates.push_back({rate, share(DType::F32), share(DType::F16), share(DType::BF16)});
  }
  return rates;
}

void updates_table(const std::vector<Unchanged>& rates, Report& report) {
  Table table({"learning rate", "fp32 weights", "fp16 weights", "bf16 weights"});
  for (const Unchanged& u : rates)
    table.row(
        {number_text(u.learning_rate), percent_text(u.fp32), percent_text(u.fp16), percent_text(u.bf16)});
  std::cout << "\n(d) Share of weights that one AdamW update leaves unchanged, without a master copy "
               "(which changes as fp32 weights do)\n\n"
            << table;
  const Unchanged& least = rates.back();
  report.check_at_most("(d) learning rate 1e-05: share of unchanged fp32 weights", least.fp32, 0.1);
  report.check_at_least("(d) learning rate 1e-05: share of unchanged bf16 weights", least.bf16, 0.5);
}

}  // namespace gradus
