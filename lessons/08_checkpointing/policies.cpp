#include "lessons/08_checkpointing/policies.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "kernels/cost.h"
#include "src/core/nearest.h"
#include "src/train/dummy.h"
#include "src/train/formulas.h"

namespace gradus {

std::vector<BlockSegment> every(int64_t k, int64_t L) {
  std::vector<BlockSegment> segments;
  // BEGIN SOLUTION 08.2
  for (int64_t at = 0; at < L; at += k) segments.push_back({std::min(k, L - at), Keep::Input});
  // STUB: todo("08.2", "segments of k blocks", k, L, segments);
  // END SOLUTION 08.2
  return segments;
}

std::vector<Policy> policies(int64_t L) {
  const auto root = int64_t(std::lround(std::sqrt(double(L))));
  return {{"store-all", {}},           {"selective", {{L, Keep::LessAttention}}},
          {"each-block", every(1, L)}, {"every-2", every(2, L)},
          {"sqrt", every(root, L)},    {"from-the-start", {}, true}};
}

int64_t Sizes::input() const { return B * T * config.channels * size_of(config.precision.value); }
int64_t Sizes::all() const { return saved_by_a_layer(config, B, T); }
int64_t Sizes::probs() const { return B * config.heads * T * T * size_of(config.precision.value); }
int64_t Sizes::tail() const { return 4 * B * T * (2 * config.channels + config.vocab + 3); }

int64_t Sizes::attention_flops() const {
  AttentionShape s{};
  s.B = B, s.H = s.KV = config.heads, s.T = T, s.D = config.channels / config.heads, s.mask = config.mask;
  return cost::attention_plain_fwd(s, DType::F32).flops;
}
// y = x W^T + b
static int64_t linear_flops(int64_t rows, int64_t in, int64_t out) { return rows * out * (2 * in + 1); }
int64_t Sizes::tail_flops() const {
  const int64_t C = config.channels, dropped = config.dropout > 0 ? 2 : 0;
  return linear_flops(B * T, 4 * C, C) + B * T * C * (dropped + 1);
}
int64_t Sizes::forward_flops() const {
  const int64_t C = config.channels, dropped = config.dropout > 0 ? 2 : 0, rows = B * T;
  return 2 * cost::layernorm_fwd({rows, C}, DType::F32).flops + linear_flops(rows, C, 3 * C) +
         attention_flops() + linear_flops(rows, C, C) + rows * C * (dropped + 1) +
         linear_flops(rows, C, 4 * C) + cost::gelu_fwd(rows * 4 * C, DType::F32).flops + tail_flops();
}

Costs costs_in_flops(const Sizes& s) {
  return {double(s.forward_flops()), double(s.tail_flops()), double(s.attention_flops())};
}

double cost_of(const BlockSegment& g, const Costs& c) {
  double cost = 0;
  // BEGIN SOLUTION 08.3
  if (g.keep == Keep::Input) cost = double(g.blocks) * c.block - c.tail;
  if (g.keep == Keep::LessAttention) cost = double(g.blocks) * c.attention;
  // STUB: todo("08.3", "the cost of recomputing these blocks", g, c, cost);
  // END SOLUTION 08.3
  return cost;
}

CostOf flops_of(const Sizes& s) {
  return [c = costs_in_flops(s)](const BlockSegment& g) { return cost_of(g, c); };
}

double extra_cost(const Policy& p, const CostOf& cost, int64_t L) {
  double sum = 0;
  for (const BlockSegment& g : p.segments) sum += cost(g);
  for (int64_t blocks = 1; p.from_the_start && blocks <= L; ++blocks) sum += cost({blocks, Keep::Input});
  return sum;
}

int64_t kept(const BlockSegment& g, const Sizes& s) {
  if (g.keep == Keep::Input) return s.input();
  return g.blocks * (s.all() - (g.keep == Keep::LessAttention ? s.probs() : 0));
}
int64_t most_within(const BlockSegment& g, const Sizes& s) {
  if (g.keep != Keep::LessAttention) return g.blocks * s.all();
  // The earlier blocks, the tensors that the last block saves up to its attention, and its probabilities.
  const int64_t until = 4 * s.B * s.T * (5 * s.config.channels + 2);
  return std::max(kept(g, s), kept({g.blocks - 1, g.keep}, s) + until + s.probs());
}

static std::vector<BlockSegment> segments_of(const Policy& p, int64_t L) {
  if (p.from_the_start) return {{L, Keep::Input}};
  return p.segments.empty() ? std::vector<BlockSegment>{{L, Keep::All}} : p.segments;
}

int64_t saved_bytes(const Policy& p, const Sizes& s) {
  int64_t bytes = s.tail();
  for (const BlockSegment& g : segments_of(p, s.config.layers)) bytes += kept(g, s);
  return bytes;
}

int64_t peak_activations(const Policy& p, const Sizes& s) {
  int64_t most = saved_bytes(p, s), before = 0;
  if (p.from_the_start) return std::max(most, (s.config.layers > 1 ? s.input() : 0) + s.all());
  for (const BlockSegment& g : segments_of(p, s.config.layers)) {
    most = std::max(most, before + most_within(g, s));
    before += kept(g, s);
  }
  return most;
}

Policy policy_by_name(const std::string& name, int64_t L) {
  std::vector<std::string> names;
  for (const Policy& p : policies(L)) {
    if (p.name == name) return p;
    names.push_back(p.name);
  }
  int64_t k = 0;
  const char* const end = name.data() + name.size();
  if (name.starts_with("every-") && std::from_chars(name.data() + 6, end, k).ptr == end && k > 0) {
    check(k <= L, "policy '", name, "': the model has ", L, " blocks; use every-1 to every-", L);
    return {name, every(k, L)};
  }
  fail("policy '", name, "' is unknown; the nearest is ", nearest(name, names),
       ". Policies: store-all, selective, each-block, every-K, sqrt, from-the-start");
}

int64_t most_activations(const std::vector<MemoryEvent>& history) {
  MemoryReplay replay;
  int64_t most = 0;
  for (const MemoryEvent& e : history) {
    replay.apply(e);
    most = std::max(most, replay.meter.now()[Kind::Activation]);
  }
  return most;
}

Counted count_on_meta(const TransformerConfig& config, int64_t batch, const Policy& p) {
  Context meta("meta");
  meta.device.allocator().keep_history();
  Transformer model(config);
  p.apply(model);
  Tape tape;
  const Tensor loss = dummy_batch(config, batch, config.context).loss(model);
  const int64_t saved = tape.saved_bytes();
  tape.backward(loss);
  return {saved, most_activations(meta.device.allocator().history()), meta.device.meter().flops()};
}

void print_tape(std::ostream& out, const TransformerConfig& config, int64_t batch, const Policy& p) {
  const Context meta("meta");
  Transformer model(config);
  p.apply(model);
  const Tape tape;
  const Tensor loss = dummy_batch(config, batch, config.context).loss(model);
  tape.print(out << p.name << "\n");
}

std::string text_of(const Policy& p) {
  if (p.from_the_start) return p.name;
  std::string text;
  for (size_t i = 0; i < p.segments.size(); ++i) {
    const BlockSegment& g = p.segments[i];
    int64_t blocks = g.blocks;
    while (g.keep != Keep::Input && i + 1 < p.segments.size() && p.segments[i + 1].keep == g.keep)
      blocks += p.segments[++i].blocks;
    const std::string count = std::to_string(blocks);
    text += (text.empty() ? "" : ", ") + (g.keep == Keep::Input ? "[" + count + "]"
                                          : g.keep == Keep::All ? count + " store-all"
                                                                : count + " selective");
  }
  return text;
}

int64_t differing_values(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return int64_t(std::max(a.size(), b.size()));
  int64_t different = 0;
  for (size_t i = 0; i < a.size(); ++i)
    different += std::bit_cast<uint64_t>(a[i]) != std::bit_cast<uint64_t>(b[i]);
  return different;
}

void check_policy(const Policy& p, const PolicyRun& run, int64_t recomputed_flops, const PolicyRun& first,
                  const Sizes& s, const std::string& skip, Report& report) {
  report.check_equal(p.name + ": bytes saved by the forward pass", run.counted.saved, saved_bytes(p, s));
  report.check_equal(p.name + ": bytes of activations at the peak", run.counted.most, peak_activations(p, s));
  report.check_equal(p.name + ": recomputed FLOPs per step", recomputed_flops,
                     int64_t(extra_cost(p, flops_of(s), s.config.layers)));
  const int64_t missing = s.config.parameter_count() - int64_t(run.gradients.size());
  report.check_equal(
      p.name + ": losses and gradients that differ bitwise from store-all",
      differing_values(run.losses, first.losses) + differing_values(run.gradients, first.gradients) + missing,
      0, skip);
}

}  // namespace gradus
