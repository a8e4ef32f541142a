// Every dropout of the three families of models: their number, their places, and that no two share their
// random numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "src/train/dummy.h"
#include "tests/nn/families_testing.h"

namespace gradus {
namespace {

constexpr double kP = 0.25;

// A table of kernels, and a list of all calls that drew random numbers.
struct Draw {
  std::string op;
  RandomKey key;
  double p;
  int64_t samples;
  std::vector<bool> dropped;  // by dropout: for each element, whether it was dropped
};
std::vector<Draw> draws;

void watched_dropout(const Ctx& ctx, RowShape s, CBuf x, Out y, float p, RandomKey key) {
  cpu_backend().dropout(ctx, s, x, y, p, key);
  Draw draw{"dropout", key, p, s.rows, {}};
  for (int64_t i = 0; i < s.rows * s.cols; ++i) {
    const double from = x.as<float>()[i], to = y.as<float>()[i];
    draw.dropped.push_back(to == 0);
    EXPECT_NEAR(to, to == 0 ? 0 : from / (1 - p), 1e-6 * std::abs(to))
        << "elements that are kept must be divided by 1 - p";
  }
  draws.push_back(draw);
}
void note(const char* op, const AttentionShape& s) { draws.push_back({op, s.key, s.dropout, s.B, {}}); }

Backend watching() {
  Backend b = cpu_backend();
  b.dropout = watched_dropout;
  b.attention_plain_fwd = [](const Ctx& c, const AttentionShape& s, auto... x) {
    note("attention_plain", s), cpu_backend().attention_plain_fwd(c, s, x...);
  };
  b.attention_plain_bwd = [](const Ctx& c, const AttentionShape& s, auto... x) {
    note("attention_plain", s), cpu_backend().attention_plain_bwd(c, s, x...);
  };
  b.attention_flash_fwd = [](const Ctx& c, const AttentionShape& s, auto... x) {
    note("attention_flash", s), cpu_backend().attention_flash_fwd(c, s, x...);
  };
  b.attention_flash_bwd = [](const Ctx& c, const AttentionShape& s, auto... x) {
    note("attention_flash", s), cpu_backend().attention_flash_bwd(c, s, x...);
  };
  return b;
}

struct L04_Dropout : ::testing::TestWithParam<std::tuple<const char*, bool>> {
  Context context{"cpu", 3};
  const Backend table = watching();
  TransformerConfig config = family(std::get<0>(GetParam()));
  L04_Dropout() {
    config.dropout = kP;
    if (std::get<1>(GetParam())) config.attention = attention_flash;
    draws.clear();
    context.device.use(table);
  }
  std::vector<std::string> expected_ops() const {
    std::vector<std::string> ops{"dropout"};
    for (int64_t l = 0; l < config.layers; ++l)
      for (const char* op :
           {std::get<1>(GetParam()) ? "attention_flash" : "attention_plain", "dropout", "dropout"})
        ops.push_back(op);
    if (config.output_head == OutputHead::Pooled) ops.push_back("dropout");
    return ops;
  }
};
INSTANTIATE_TEST_SUITE_P(Families, L04_Dropout,
                         ::testing::Combine(::testing::ValuesIn(kFamilies), ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) ? "_flash" : "_plain");
                         });

TEST_P(L04_Dropout, AsManyAsConfiguredEachWithWordsOfItsOwn) {
  Transformer model(config);
  randomize(model, 1);
  const DummyBatch batch = dummy_batch(config, 4, config.context);
  Tape tape;
  const Tensor loss = batch.loss(model);
  std::vector<std::string> ops;
  std::set<uint32_t> ordinals;
  for (const Draw& d : draws) {
    ops.push_back(d.op);
    ordinals.insert(d.key.ordinal);
    EXPECT_EQ(d.key.seed, context.seed);
    EXPECT_EQ(d.p, kP);
    EXPECT_EQ(d.samples, 4) << "the first dimension counts the samples";
  }
  EXPECT_EQ(ops, expected_ops());
  EXPECT_EQ(ordinals.size(), draws.size()) << "two dropouts share their random numbers";

  const std::vector<Draw> forward = std::exchange(draws, {});
  tape.backward(loss);
  ASSERT_EQ(draws.size(), forward.size());
  for (size_t i = 0; i < draws.size(); ++i) {
    const Draw& f = forward[forward.size() - 1 - i];
    EXPECT_EQ(draws[i].op, f.op);
    EXPECT_EQ(draws[i].key.ordinal, f.key.ordinal) << "backward must drop what forward dropped";
    EXPECT_EQ(draws[i].dropped.size(), f.dropped.size());
    for (size_t e = 0; e < f.dropped.size(); ++e)
      ASSERT_TRUE(draws[i].dropped[e] || !f.dropped[e]) << f.op << " " << i << ", element " << e;
  }
}

// Allowed: five standard deviations of a binomial, for the dropped share and for the elements that two masks
// both drop.
TEST_P(L04_Dropout, DropsTheShareAndNotTheSameElementsTwice) {
  Transformer model(config);
  randomize(model, 1);
  dummy_batch(config, 4, config.context).loss(model);
  std::erase_if(draws, [](const Draw& d) { return d.op != "dropout"; });
  for (size_t i = 0; i < draws.size(); ++i) {
    const std::vector<bool>& a = draws[i].dropped;
    const double n = double(a.size());
    EXPECT_NEAR(double(std::count(a.begin(), a.end(), true)) / n, kP, 5 * std::sqrt(kP * (1 - kP) / n)) << i;
    for (size_t j = 0; j < i; ++j) {
      const std::vector<bool>& b = draws[j].dropped;
      const size_t both_n = std::min(a.size(), b.size());
      double both = 0;
      for (size_t e = 0; e < both_n; ++e) both += a[e] && b[e];
      const double q = kP * kP;
      EXPECT_NEAR(both / double(both_n), q, 5 * std::sqrt(q * (1 - q) / double(both_n))) << i << " and " << j;
    }
  }
}

TEST_P(L04_Dropout, IsWhereItBelongs) {
  Transformer model(config);
  randomize(model, 1);
  Tape tape;
  const Tensor loss = dummy_batch(config, 2, config.context).loss(model);
  std::vector<std::string> before;
  for (size_t i = 1; i < tape.nodes().size(); ++i)
    if (tape.nodes()[i].op == std::string("dropout")) before.push_back(tape.nodes()[i - 1].op);
  std::vector<std::string> expected(1 + 2 * config.layers, "linear");
  expected[0] = config.residual == Residual::PostNorm ? "layernorm"
                : config.rotary > 0                   ? "embedding"
                                                      : "add_positions";
  if (config.output_head == OutputHead::Pooled) expected.push_back("tanh");
  EXPECT_EQ(before, expected);
}

}  // namespace
}  // namespace gradus
