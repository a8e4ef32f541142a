// Units of ZeRO: how much is gathered at once, that only units that are not needed are released, and what
// overlap hides.
#include "tests/parallel/layered_model.h"
#include "tests/parallel/parallel_training.h"

namespace gradus {
namespace {

constexpr int64_t kLayers = 100, kRanks = 3;
// No two layers have the same size: widths go up and down.
int64_t width(int64_t i) { return 3 + i * 7 % 11; }
int64_t layer_numel(int64_t i) { return width(i) * width(i + 1) + width(i + 1); }

void declare_hundred(LayeredModel& m) {
  m.in = width(0), m.out = width(kLayers);
  for (int64_t i = 0; i < kLayers; ++i) m.linear("l" + std::to_string(i), width(i), width(i + 1));
  m.forward = [&m](const Tensor& x) {
    Tensor y = x;
    for (const Linear& l : m.linears) y = sampled(l(y), &m.samples);
    return y;
  };
}

struct Wrap {
  std::string what;
  std::function<int64_t(int64_t layer)> group;  // -1: root
};
// The bytes of each unit in fp32, padded to the number of ranks, and those of the root.
struct UnitBytes {
  std::vector<int64_t> units;
  int64_t root = 0;
};
UnitBytes unit_bytes(const Wrap& wrap) {
  UnitBytes bytes;
  for (int64_t i = 0; i < kLayers; ++i) {
    const int64_t g = wrap.group(i);
    if (g >= int64_t(bytes.units.size())) bytes.units.resize(size_t(g) + 1, 0);
    (g < 0 ? bytes.root : bytes.units[size_t(g)]) += layer_numel(i);
  }
  for (int64_t& b : bytes.units) b = 4 * round_up(b, kRanks);
  bytes.root = 4 * round_up(bytes.root, kRanks);
  return bytes;
}
int64_t most_of(const UnitBytes& bytes, const ZeroArgs& args) {
  int64_t most = 0, all = 0;
  for (size_t i = 0; i < bytes.units.size(); ++i) {
    const int64_t next = args.overlap && i + 1 < bytes.units.size() ? bytes.units[i + 1] : 0;
    most = std::max(most, bytes.units[i] + next), all += bytes.units[i];
  }
  return bytes.root + (args.keep_gathered ? all : most);
}

TEST(L18_ZeroUnits, AHundredLayersInUnitsOfAnySize) {
  const std::vector<Wrap> wraps{
      {"a unit each", [](int64_t i) { return i; }},
      {"one unit", [](int64_t) { return 0; }},
      {"only root", [](int64_t) { return -1; }},
      {"three share one", [](int64_t i) { return i / 3; }},
      {"root first and last", [](int64_t i) { return i < 2 || i >= kLayers - 3 ? -1 : (i - 2) / 5; }}};
  for (const Wrap& wrap : wraps) {
    const UnitBytes bytes = unit_bytes(wrap);
    for (const bool overlap : {false, true})
      for (const bool keep : {false, true}) {
        ZeroArgs args{.stage = 3, .overlap = overlap, .keep_gathered = keep};
        args.unit = [&](const Parameter& p) {
          const int64_t g = wrap.group(std::stoll(p.name.substr(1)));
          return g < 0 ? "" : "u" + std::to_string(g);
        };
        SCOPED_TRACE(wrap.what + (overlap ? ", overlapped" : "") + (keep ? ", kept" : ""));
        LayeredRun run{.declare = declare_hundred, .ranks = kRanks, .steps = 2};
        expect_layered_trains(run, args, [&](LayeredModel& m, Zero& zero) {
          const int64_t most = most_of(bytes, args), own = 4 * zero.numel() / kRanks;
          EXPECT_EQ(zero.most_gathered(), most);
          EXPECT_EQ(m.samples.count, run.steps * 2 * kLayers);
          const int64_t kept = 2 * own + (256 << 10);  // weights and gradients, and the buffer for sums
          EXPECT_LE(m.samples.forward, kept + most) << "more than most_gathered()";
          EXPECT_GT(m.samples.forward, kept);
          // The same number of units' gradients; the root's gradients stay until the end.
          EXPECT_LE(m.samples.backward, kept + most + most_of(bytes, {.overlap = overlap}));
          if (wrap.what == "a unit each") {
            // Between two layers, those of the later one, while they are summed.
            const int64_t summed = *std::max_element(bytes.units.begin() + 1, bytes.units.end());
            EXPECT_EQ(m.samples.gradient, own + (overlap ? summed : 0));
          }
          EXPECT_EQ(current().device.meter().now()[Kind::Weight], own);
        });
      }
  }
}

// Segments are recomputed from their beginning, so the order of units goes up and down. No more than one
// unit, and with overlap one more, is gathered in addition to the root.
TEST(L18_ZeroUnits, OfATransformerWithSegmentsOfSeveralBlocks) {
  const std::vector<std::vector<BlockSegment>> cuts{
      std::vector<BlockSegment>(6, {2, Keep::Input}),
      std::vector<BlockSegment>(3, {4, Keep::Input}),
      {{5, Keep::Input}, {1, Keep::All}, {6, Keep::LessAttention}},
      {}};  // from the start
  for (size_t cut = 0; cut < cuts.size(); ++cut)
    for (const bool overlap : {false, true}) {
      ShardedSetting set{.ranks = 2, .steps = 1, .batch = 2, .device = "meta"};
      set.prepare = [&](Transformer& m) { m.segments = cuts[cut], m.from_the_start = cuts[cut].empty(); };
      set.model.layers = 12, set.model.precision = precision_recipe("mixed");
      const int64_t C = set.model.channels, block = 12 * C * C + 13 * C,
                    root = set.model.vocab * C + set.model.context * C + 2 * C;
      run_cluster(cluster_of(set), [&](Comm& comm) {
        train_with_zero(set, comm, {.unit = unit_per_block, .overlap = overlap},
                        [&](Transformer&, Zero& zero, Optimizer&) {
                          EXPECT_LE(zero.most_gathered(),
                                    2 * (round_up(root, 2) + (overlap ? 2 : 1) * round_up(block, 2)))
                              << "cut " << cut << (overlap ? ", overlapped" : "");
                        });
      });
    }
}

TEST(L18_ZeroUnits, NamesOfBlocks) {
  const auto unit = [](const std::string& name) {
    Parameter p;
    p.name = name;
    return unit_per_block(p);
  };
  EXPECT_EQ(unit("h.3.attn.c_attn.weight"), "h.3");
  EXPECT_EQ(unit("h.12.ln_1.bias"), "h.12");
  for (const char* name : {"wte.weight", "wpe.weight", "ln_f.bias", "lm_head.weight", "", "h", "pooler.bias"})
    EXPECT_EQ(unit(name), "") << name;
}

// With several passes all tapes exist at once: then a gradient is final after the last pass.
TEST(L18_ZeroUnits, InAnyOrderAndUsedTwice) {
  using Forward = std::function<Tensor(LayeredModel&, const Tensor&)>;
  const struct {
    const char* what;
    Forward forward;
    int64_t passes = 1;
  } cases[] = {{"twice in its unit",
                [](LayeredModel& m, const Tensor& x) {
                  return m.norms[0](m.linears[2](m.linears[1](m.linears[1](m.linears[0](m.linears[0](x))))));
                }},
               {"twice, after other units",
                [](LayeredModel& m, const Tensor& x) {
                  const Linear &a = m.linears[0], &b = m.linears[1], &c = m.linears[2];
                  return linear(c(linear(m.norms[0](b(a(x))), a.weight.value)), b.weight.value);
                }},
               {"in another order than declared",
                [](LayeredModel& m, const Tensor& x) {
                  return m.linears[0](m.linears[2](m.linears[1](m.norms[0](x))));
                }},
               {"several passes in a row",
                [](LayeredModel& m, const Tensor& x) {
                  return m.norms[0](m.linears[2](m.linears[1](m.linears[0](x))));
                },
                3}};
  for (const auto& c : cases)
    for (ZeroArgs args : all_ways())
      for (const int64_t ranks : {2, 3}) {
        args.unit = unit_per_layer;
        SCOPED_TRACE(c.what + (", " + text_of(args)));
        const Declare declare = [&](LayeredModel& m) {
          for (const char* name : {"a", "b", "c"}) m.linear(name, 4, 4);
          m.norm("n", 4);
          m.forward = [&](const Tensor& x) { return c.forward(m, x); };
        };
        expect_layered_trains({.declare = declare, .ranks = ranks, .passes = c.passes}, args);
      }
}

// ---- overlap hides communication behind computation, on the simulated clock ----

struct Exposed {  // seconds in which a rank only waits
  double forward = 0, backward = 0;
};

constexpr double kBandwidth = 5e5;
// Computation takes the time of its operations; all communication takes a fifth of that.
ShardedSetting eight_blocks() {
  ShardedSetting set{.ranks = 2, .steps = 1, .batch = 2, .device = "meta"};
  set.model.layers = 8;
  return set;
}
constexpr int64_t kSteps = 2;  // the second begins like the first
Exposed with_zero(const ZeroArgs& args, int64_t evaluations) {
  const ShardedSetting set = eight_blocks();
  const auto computed = [](int64_t, Context& c) { return double(c.device.meter().flops()) * 1e-6; };
  Exposed e;
  const Network net{.name = "test", .source = "", .link = {0, kBandwidth}};
  run_cluster({.ranks = 2, .device = "meta", .network = net, .computed = computed}, [&](Comm& comm) {
    double before = comm.seconds(), flops = computed(0, current());
    const auto to = [&](double Exposed::*phase) {
      const double now = comm.seconds(), ran = computed(0, current());
      if (phase && comm.rank() == 0) e.*phase += now - before - (ran - flops);
      before = now, flops = ran;
    };
    Transformer model(set.model, Allocate::Later);
    Zero zero(comm, model.parameters, args);
    for (int64_t step = 0; step < kSteps; ++step) {
      zero.model().zero_grad();
      to(nullptr);
      for (int64_t i = 0; i < evaluations; ++i) {
        const Evaluation evaluation;
        share_of_loss(set, model, 0, comm.rank(), 0);
        zero.end_forward();
        to(&Exposed::forward);
      }
      Tape tape;
      to(nullptr);
      const Tensor loss = share_of_loss(set, model, 0, comm.rank(), 0);
      zero.end_forward();
      to(&Exposed::forward);
      tape.backward(loss);
      zero.end_backward();
      to(&Exposed::backward);
    }
  });
  return e;
}

// In each direction only the root and one of eight blocks are waited for, also after passes that only
// evaluate: in each pass the second unit is gathered while the first computes.
TEST(L18_Overlap, HidesGathersAndSums) {
  const ShardedSetting set = eight_blocks();
  const int64_t C = set.model.channels, block = 12 * C * C + 13 * C,
                root = (set.model.vocab + set.model.context + 2) * C;
  const auto seconds = [&](int64_t n) { return double(kSteps) * double(n) / 2 * 4 / kBandwidth; };
  const double one = seconds(root + block), all = seconds(root + 8 * block);
  for (const int stage : {0, 1, 2, 3})
    for (const bool keep : {false, true}) {
      if (keep && stage < 3) continue;
      double alone = 0;  // without evaluations
      for (const int64_t evaluations : {0, 2}) {
        ZeroArgs args{.stage = stage, .unit = unit_per_block, .keep_gathered = keep};
        const Exposed plain = with_zero(args, evaluations);
        args.overlap = true;
        const Exposed overlapped = with_zero(args, evaluations);
        const std::string what = text_of(args) + ", evaluations: " + std::to_string(evaluations);
        const double forward = stage == 3 ? 1 + double(evaluations) : 0;
        const int backward = stage == 0 || (stage == 3 && !keep) ? 2 : 1;
        EXPECT_NEAR(plain.forward, forward * all, 1e-6 * all) << what;
        EXPECT_NEAR(overlapped.forward, forward * one, 1e-6 * all) << what;
        EXPECT_NEAR(plain.backward, backward * all, 1e-6 * all) << what;
        EXPECT_LT(overlapped.backward, (backward + 1e-6) * one) << what;
        EXPECT_GT(overlapped.backward, seconds(root)) << what << ": the last sum cannot be overlapped";
        if (evaluations == 0) alone = overlapped.backward;
        EXPECT_NEAR(overlapped.backward, alone, 1e-6 * one) << what;
      }
    }
}

}  // namespace
}  // namespace gradus
