#include "lessons/04_memory_anatomy/anatomy.h"

#include <cmath>
#include <iostream>
#include <set>

#include "src/core/table.h"
#include "src/train/formulas.h"

namespace gradus {

// ---- (b) ----------------------------------------------------------------------------------------------

constexpr const char* kPasses[] = {"forward", "backward", "update"};
using Pass = std::array<Meter::Totals, kOpClasses>;

static Pass take_work(Meter& meter) {
  Pass pass;
  for (int c = 0; c < kOpClasses; ++c) pass[size_t(c)] = meter.totals(OpClass(c));
  meter.reset_totals();
  return pass;
}

// The work of the second of two steps; the first step is the warm-up.
static std::array<Pass, 3> work_of_a_step(Transformer& model, AdamW& optimizer, const DummyBatch& batch) {
  Meter& meter = current().device.meter();
  meter.keep_times();
  std::array<Pass, 3> passes;
  for (int step = 0; step < 2; ++step) {
    take_work(meter);
    Tape tape;
    const Tensor loss = batch.loss(model);
    passes[0] = take_work(meter);
    model.parameters.zero_grad();
    tape.backward(loss);
    passes[1] = take_work(meter);
    optimizer.step(1e-3);
    passes[2] = take_work(meter);
  }
  return passes;
}

void op_classes_table(Transformer& model, AdamW& optimizer, const DummyBatch& batch, Report& report) {
  static constexpr const char* kClasses[kOpClasses] = {"tensor contraction", "normalization", "element-wise",
                                                       "other"};
  const std::array<Pass, 3> passes = work_of_a_step(model, optimizer, batch);
  const bool timed = current().device.has_data();
  double seconds[3] = {}, flops[3] = {}, contractions = 0;
  for (int p = 0; p < 3; ++p)
    for (const Meter::Totals& w : passes[p]) seconds[p] += w.seconds, flops[p] += double(w.flops);
  const double all = seconds[0] + seconds[1] + seconds[2];

  std::cout << "\n(b) One step, timed kernel by kernel; the softmax of attention counts as contraction, "
               "the gradient of a bias as normalization\n\n";
  Table table({"pass", "class", "kernel calls", "GFLOP", "MB moved", "FLOP/byte", "time", "share of time"});
  for (int p = 0; p < 3; ++p)
    for (int c = 0; c < kOpClasses; ++c) {
      const Meter::Totals& w = passes[p][size_t(c)];
      if (w.calls == 0) continue;
      if (OpClass(c) == OpClass::Contraction) contractions += w.seconds;
      table.row({kPasses[p], kClasses[c], std::to_string(w.calls), number_text(double(w.flops) * 1e-9),
                 number_text(double(w.bytes) * 1e-6), number_text(double(w.flops) / double(w.bytes)),
                 timed ? seconds_text(w.seconds) : "", timed ? percent_text(w.seconds / all) : ""});
    }
  std::cout << table << "backward / forward: FLOPs " << number_text(flops[1] / flops[0]);
  if (timed) std::cout << ", time " << number_text(seconds[1] / seconds[0]);
  std::cout << "\n";
  const auto of_contractions = [&](int p) { return passes[p][int(OpClass::Contraction)].flops; };
  check_passes(of_contractions(0), of_contractions(1), timed ? contractions / all : NAN, report);
}

void check_passes(int64_t forward, int64_t backward, double share_of_time, Report& report) {
  report.check_equal("FLOPs of contractions: backward = 2 x forward", backward, 2 * forward);
  report.timing_at_least("share of contractions in the time of the step", share_of_time, 0.5);
}

// ---- (c) ----------------------------------------------------------------------------------------------

static TransformerConfig small_model(const Precision& precision, double dropout = 0) {
  return {.vocab = 96,
          .context = 48,
          .layers = 2,
          .heads = 4,
          .channels = 64,
          .dropout = dropout,
          .precision = precision};
}

constexpr const char* kInference = "none (inference)";

// Memory at the peak of two steps; for kInference, at the peak of a forward pass without a tape.
static Usage peak_of(const Lesson& lesson, const Precision& precision, const char* optimizer_name) {
  LessonContext context(lesson);
  Transformer model(small_model(precision));
  model.initialize(lesson.seed);
  const DummyBatch batch = dummy_batch(model.config, 2, model.config.context);
  const std::string name = optimizer_name;
  if (name == kInference) {
    batch.loss(model);
    return context.device.meter().at_peak();
  }
  std::unique_ptr<Optimizer> optimizer;
  if (name == "AdamW") optimizer = std::make_unique<AdamW>(model.parameters);
  if (name == "momentum") optimizer = std::make_unique<Sgd>(model.parameters, SgdArgs{.momentum = 0.9f});
  if (name == "SGD") optimizer = std::make_unique<Sgd>(model.parameters);
  for (int step = 0; step < 2; ++step) {
    Tape tape;
    const Tensor loss = batch.loss(model);
    model.parameters.zero_grad();
    tape.backward(loss);
    optimizer->step(1e-3);
  }
  return context.device.meter().at_peak();
}

void bytes_per_parameter_table(const Lesson& lesson, Report& report) {
  std::cout << "\n(c) Bytes per parameter, measured in two steps of a small model; recipe: number formats "
               "(zero: as in the ZeRO paper; half: all in fp16)\n\n";
  const int64_t N = small_model({}).parameter_count();
  std::vector<MeasuredAndFormula> rows;
  Table table({"recipe", "optimizer", "weight", "master", "gradient", "states", "measured sum", "formula"});
  for (const std::string_view recipe : kRecipes)
    for (const auto& [name, states] :
         {std::pair("AdamW", 2), {"momentum", 1}, {"SGD", 0}, {kInference, -1}}) {
      const Precision precision = precision_recipe(recipe);
      const Usage peak = peak_of(lesson, precision, name);
      std::vector<std::string> cells{std::string(recipe), name};
      int64_t measured = 0;
      for (const Kind kind : {Kind::Weight, Kind::Master, Kind::Gradient, Kind::Optimizer}) {
        measured += peak[kind];
        cells.push_back(number_text(double(peak[kind]) / double(N)));
      }
      // Inference needs neither gradients nor states.
      const int64_t formula = states >= 0 ? bytes_per_parameter(precision, states)
                                          : bytes_per_parameter(precision, 0) - size_of(precision.gradient);
      cells.push_back(number_text(double(measured) / double(N)));
      cells.push_back(std::to_string(formula));
      table.row(cells);
      rows.push_back({measured, formula * N});
    }
  std::cout << table;
  check_parameters(rows, report);
}

void check_parameters(const std::vector<MeasuredAndFormula>& rows, Report& report) {
  int64_t differing = rows.empty();
  for (const auto& [measured, formula] : rows) differing += measured != formula;
  report.check_equal("bytes per parameter: rows that differ from the formula", differing, 0);
}

// ---- (d) ----------------------------------------------------------------------------------------------

struct Sizes {
  int64_t s, b, h, a;  // tokens per sequence, batch, channels, heads
};
struct Published {  // what Megatron-LM saves for the operation that our tape calls `op`
  const char *op, *what;
  int64_t sbh, ass_b;  // bytes in units of s b h and of a s^2 b
  const char* why;     // the reason for gradus's difference; empty: no difference
};
// The operations of a block that save a tensor, in the order of the tape.
static constexpr Published kLayer[] = {
    {"layernorm", "input", 2, 0, "plus mean and 1/deviation per token, 8 bytes"},
    {"linear", "input of layer h -> 3h (q, k, v)", 2, 0, ""},
    {"attention_plain", "q, k, v; softmax; dropout", 6, 5, "mask and output of dropout are recomputed"},
    {"linear", "input of the output projection", 2, 0, ""},
    {"dropout", "dropout mask", 1, 0, "the mask is recomputed"},
    {"layernorm", "input", 2, 0, "plus mean and 1/deviation per token"},
    {"linear", "input of layer h -> 4h", 2, 0, ""},
    {"gelu", "input", 8, 0, ""},
    {"linear", "input of layer 4h -> h", 8, 0, ""},
    {"dropout", "dropout mask", 1, 0, "the mask is recomputed"},
};

// The bytes of the activations that this node saves and no earlier node has saved.
static int64_t newly_saved(const Node& node, std::set<const Storage*>& seen) {
  int64_t bytes = 0;
  for (const Saved& s : node.saved)
    if (s.tensor.defined() && s.tensor.storage().kind() == Kind::Activation &&
        seen.insert(&s.tensor.storage()).second)
      bytes += s.tensor.bytes();
  return bytes;
}

static std::string formula_text(int64_t sbh, int64_t ass_b) {
  return (sbh > 1 ? std::to_string(sbh) : "") + "sbh" +
         (ass_b > 0 ? " + " + std::to_string(ass_b) + "as²b" : "");
}

void saved_activations_table(const Lesson& lesson, Report& report) {
  const LessonContext context(lesson);
  Transformer model(small_model(precision_recipe("mixed"), 0.1));
  model.initialize(lesson.seed);
  const TransformerConfig& c = model.config;
  const Sizes z{c.context, 4, c.channels, c.heads};
  Tape tape;
  dummy_batch(c, z.b, z.s).loss(model);
  std::cout << "\n(d) Bytes saved for backward in one block, 16 bits: b = " << z.b
            << " sequences, s = " << z.s << " tokens, h = " << z.h << " channels, a = " << z.a
            << " heads; difference: gradus - Megatron-LM\n\n";

  Table table({"operation", "saved tensors", "formula", "Megatron-LM", "gradus", "difference", "reason"});
  std::set<const Storage*> seen;
  const int64_t sbh = z.s * z.b * z.h, ass_b = z.a * z.s * z.s * z.b;
  int64_t published = 0, ours = 0, sbh_sum = 0, ass_b_sum = 0;
  auto node = tape.nodes().begin();
  while (std::string_view(node->op) != "layernorm") ++node;  // skip the embedding
  for (const Published& p : kLayer) {
    while (std::string_view(node->op) == "add") ++node;  // saves nothing
    check(std::string_view(node->op) == p.op, "lesson 04: the tape has ", node->op, " where the table has ",
          p.op);
    const int64_t megatron = p.sbh * sbh + p.ass_b * ass_b, bytes = newly_saved(*node++, seen);
    table.row({p.op, p.what, formula_text(p.sbh, p.ass_b), count_text(megatron), count_text(bytes),
               count_text(bytes - megatron), p.why});
    published += megatron, ours += bytes, sbh_sum += p.sbh, ass_b_sum += p.ass_b;
  }
  table.row({"sum", "", formula_text(sbh_sum, ass_b_sum), count_text(published), count_text(ours),
             count_text(ours - published), ""});
  std::cout << table;
  check_saved(published, ours, c, z.b, report);
}

void check_saved(int64_t published, int64_t ours, const TransformerConfig& c, int64_t b, Report& report) {
  const int64_t s = c.context, sbh = s * b * c.channels, ass_b = c.heads * s * s * b;
  report.check_equal("saved bytes per block, Megatron-LM = sbh (34 + 5as/h)", published,
                     34 * sbh + 5 * ass_b);
  report.check_equal("saved bytes per block, gradus = Megatron-LM - 2sbh - 3as²b + 16sb", ours,
                     34 * sbh + 5 * ass_b - 2 * sbh - 3 * ass_b + 16 * s * b);
  report.check_equal("saved bytes per block, gradus = formula of exercise 04.3", ours,
                     saved_by_a_layer(c, b, s));
}

}  // namespace gradus
