// Lesson 21: the exercises, and the functions that compute the program's tables.
#include "lessons/21_mixture_of_experts/kinds.h"
#include "lessons/21_mixture_of_experts/ranks.h"
#include "lessons/21_mixture_of_experts/routing.h"
#include "lessons/21_mixture_of_experts/runs.h"
#include "src/parallel/comm/cluster.h"
#include "src/parallel/rank_ops.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

Tensor on_cpu(const std::vector<float>& values, const Shape& shape) {
  return from_host(current().device, values, shape, DType::F32, Kind::Other, "x");
}
std::vector<double> near(const Tensor& x) { return to_host<double>(x); }

TEST(L21_Exercises, AnExpertsPlaces) {
  RecordProperty("exercise", "21.1");
  const auto places = [](int64_t experts, int64_t chosen, double factor, int64_t T) {
    TransformerConfig c;
    c.experts = experts, c.chosen = chosen, c.capacity_factor = factor;
    return c.expert_capacity(T);
  };
  EXPECT_EQ(places(8, 2, 1, 64), 16)
      << "each of 64 tokens is routed to two experts, so all experts together need 128 places";
  EXPECT_EQ(places(8, 2, 1.25, 64), 20);
  EXPECT_EQ(places(8, 2, 1, 10), 3)
      << "20 choices / 8 experts = 2.5 must be rounded up, or the last choices find no place";
  EXPECT_EQ(places(8, 2, 1, 9), 3)
      << "18 choices / 8 experts = 2.25 must be rounded up, not to the nearest integer";
  EXPECT_EQ(places(8, 2, 1.25, 9), 3) << "1.25 times 2.25: round only the product, not its factors";
  EXPECT_EQ(places(3, 2, 1.5, 1), 1);
  EXPECT_EQ(places(4, 2, 3, 10), 10)
      << "a token is routed to an expert only once, so more places than tokens stay empty";
  EXPECT_EQ(places(4, 2, 0, 10), 10);
}

TEST(L21_Exercises, ARouterChoosesTheLargestLogits) {
  RecordProperty("exercise", "21.2");
  Context context;
  const Tensor logits = on_cpu({0.5, 3, -1, 2, 1, 1, 4, 1}, {1, 2, 4});
  const Routing r = choose_experts(logits, 2, 2);
  EXPECT_EQ(to_host<int32_t>(r.experts), (std::vector<int32_t>{1, 3, 2, 0}))
      << "the expert with the largest logit comes first; of equal logits, the expert with the smaller index";
  const std::vector<double> w = near(r.weights);
  ASSERT_EQ(w.size(), 4u);
  EXPECT_NEAR(w[0] + w[1], 1, 1e-6) << "the weights are a softmax over the chosen logits only";
  EXPECT_NEAR(w[0], 1 / (1 + std::exp(-1.0)), 1e-6);
  EXPECT_NEAR(w[2], 1 / (1 + std::exp(-3.0)), 1e-6);
  const std::vector<double> three = near(choose_experts(logits, 3, 2).weights);
  EXPECT_NEAR(three[2] / three[0], std::exp(0.5 - 3), 1e-6)
      << "the third weight divided by the first is e^(third logit - first logit)";
}

TEST(L21_Exercises, ARouterChoosesAmongEqualLogitsAndNaN) {
  RecordProperty("exercise", "21.2");
  Context context;
  const Tensor odd = on_cpu({1, NAN, 2, -INFINITY, -INFINITY, -INFINITY}, {1, 2, 3});
  EXPECT_EQ(to_host<int32_t>(choose_experts(odd, 2, 2).experts), (std::vector<int32_t>{1, 2, 0, 1}))
      << "NaN is larger than every number; of three logits of -infinity the first two are chosen, each only "
         "once";
}

TEST(L21_Exercises, TheBalanceLoss) {
  RecordProperty("exercise", "21.3");
  Context context;
  const auto loss = [](const std::vector<float>& logits, const Shape& shape, int64_t k, int64_t places) {
    const Tensor x = on_cpu(logits, shape);
    return item(balance_loss(x, choose_experts(x, k, places), 0.5));
  };
  EXPECT_NEAR(loss({9, 0, 0, 9}, {1, 2, 2}, 1, 2), 0.5, 1e-4)
      << "the loss is alpha if the experts get equal shares";
  EXPECT_NEAR(loss({99, 0, 99, 0}, {1, 2, 2}, 1, 2), 1, 1e-6)
      << "the loss is alpha E / k if all tokens are routed to the same k experts";
  EXPECT_NEAR(loss({99, 0, 99, 0}, {1, 2, 2}, 1, 1), 1, 1e-6)
      << "a choice that found no place counts like every other choice";
  EXPECT_NEAR(loss({99, 0, 99, 0, 0, 99, 0, 99}, {2, 2, 2}, 1, 2), 1, 1e-6)
      << "shares are computed per sequence: two sequences that both use a single expert are not balanced";
  // One token with the logits ln 1, ln 2, ln 3: P = 1/6, 2/6, 3/6. It is routed to experts 2 and 1, so each
  // has a share of 1/2.
  const float two = std::log(2.f), three = std::log(3.f);
  EXPECT_NEAR(loss({0, two, three}, {1, 1, 3}, 2, 1), 0.5 * 3 * (0.5 * 2 / 6 + 0.5 * 3 / 6), 1e-6)
      << "P is the softmax over all experts, not over the chosen experts";
  // The gradient of the loss of one token: alpha E p[e] (f[e] - sum of f p).
  Tensor x = on_cpu({0, two, three}, {1, 1, 3});
  Leaf leaf;
  attach(x, leaf, "logits");
  Tape tape;
  tape.backward(balance_loss(x, choose_experts(x, 2, 1), 0.5));
  const std::vector<double> dx = to_host<double>(leaf.grad);
  const double p[] = {1. / 6, 2. / 6, 3. / 6}, f[] = {0, 0.5, 0.5}, mean = 0.5 * 2 / 6 + 0.5 * 3 / 6;
  for (size_t e = 0; e < 3; ++e)
    EXPECT_NEAR(dx[e], 0.5 * 3 * p[e] * (f[e] - mean), 1e-6)
        << "the gradient needs per_sum = 1 / (sum of the exponentials)";
}

TEST(L21_Exercises, RowsTravelToTheirExperts) {
  RecordProperty("exercise", "21.4");
  // Rank r has one sequence; the row that it sends to expert e is 10 r + e.
  std::vector<std::vector<double>> got(2), back(2);
  run_cluster({.ranks = 2}, [&](Comm& comm) {
    const float r = float(10 * comm.rank());
    const Tensor x = on_cpu({r, r + 1, r + 2, r + 3}, {4, 1, 1, 1});
    const Tensor y = to_experts(comm, x);
    got[size_t(comm.rank())] = near(y), back[size_t(comm.rank())] = near(from_experts(comm, y));
  });
  EXPECT_EQ(got[0], (std::vector<double>{0, 10, 1, 11}))
      << "rank 0 has experts 0 and 1, and gets for each what rank 0 and rank 1 send to it";
  EXPECT_EQ(got[1], (std::vector<double>{2, 12, 3, 13}));
  EXPECT_EQ(back[0], (std::vector<double>{0, 1, 2, 3})) << "from_experts must be the inverse of to_experts";
  EXPECT_EQ(back[1], (std::vector<double>{10, 11, 12, 13}));
}

// A small mixture, two sequences, and the logits of one sequence or of both.
struct SmallMixture {
  Context context;
  Transformer model{mixture_sizes(true).mixture};
  const int64_t T = model.config.context;
  std::vector<int32_t> first, second;
  SmallMixture() {
    model.initialize(3);
    for (int32_t t = 0; t < T; ++t) first.push_back(7 * t % 31), second.push_back(11 * t % 29);
  }
  std::vector<double> logits(const std::vector<int32_t>& ids) const {
    const Shape shape{int64_t(ids.size()) / T, T};
    return near(model.logits(from_host(current().device, ids, shape, DType::I32, Kind::Data, "ids")));
  }
  bool drops() const {
    for (const int32_t slot : to_host<int32_t>(model.blocks[0].routed->routing.slots))
      if (slot == kElsewhere) return true;
    return false;
  }
};

TEST(L21_Exercises, LogitsDoNotDependOnLaterTokens) {
  RecordProperty("exercise", "21.6");
  SmallMixture small;
  const std::vector<double> before = small.logits(small.first);
  ASSERT_TRUE(small.drops()) << "no expert is full, so this test cannot find the bug";
  for (size_t changed = 1; changed < size_t(small.T); ++changed) {
    std::vector<int32_t> ids = small.first;
    for (size_t t = changed; t < ids.size(); ++t) ids[t] = small.second[t];
    const std::vector<double> after = small.logits(ids);
    for (size_t i = 0; i < changed * 256; ++i)
      ASSERT_EQ(after[i], before[i]) << "the logits of token " << i / 256 << " change with the tokens from "
                                     << changed
                                     << " on, which do not exist yet when the model generates text";
  }
}

TEST(L21_Mixture, LogitsDoNotDependOnOtherSequences) {
  SmallMixture small;
  std::vector<int32_t> both = small.first;
  both.insert(both.end(), small.second.begin(), small.second.end());
  const std::vector<double> alone = small.logits(small.second), together = small.logits(both);
  EXPECT_TRUE(small.drops());
  EXPECT_EQ(alone, std::vector<double>(together.end() - int64_t(alone.size()), together.end()));
}

TEST(L21_Mixture, OnlyTrainingAddsTheBalanceLoss) {
  SmallMixture small;
  const auto tensor = [&](const std::vector<int32_t>& ids) {
    return from_host(current().device, ids, {1, small.T}, DType::I32, Kind::Data, "ids");
  };
  const Tensor ids = tensor(small.first), targets = tensor(small.second);
  const double text = item(cross_entropy(small.model.logits(ids), targets)),
               alpha = small.model.config.balance;
  const double training = item(small.model.loss(ids, targets));
  EXPECT_GE(training - text, 0.9 * alpha);
  EXPECT_LE(training - text, 4 * alpha);
  const Evaluation evaluation;
  EXPECT_EQ(item(small.model.loss(ids, targets)), text);
}

TEST(L21_Text, EachByteBelongsToAGrammar) {
  const KindsText text = text_of_kinds(20'000, 3);
  ASSERT_EQ(text.kind.size(), text.corpus.bytes.size());
  EXPECT_GE(text.corpus.bytes.size(), 20'000u);
  EXPECT_GT(text.corpus.split, 17'000);
  EXPECT_LE(text.corpus.split, 18'000 + 1000);
  std::vector<int64_t> bytes(4);
  for (size_t i = 0; i < text.kind.size();) {
    const size_t begin = i, kind = text.kind[i];
    while (i < text.kind.size() && text.kind[i] == kind) ++i;
    const std::string file = find_data_file(text.names[kind] + ".grammar");
    const Grammar grammar = Grammar::parse(read_text_file(file), file);
    EXPECT_TRUE(std::isfinite(grammar.log_probability(text.corpus.bytes.substr(begin, i - begin))));
    EXPECT_GE(i - begin, 300u);
    bytes[kind] += int64_t(i - begin);
  }
  for (const int64_t n : bytes) EXPECT_GT(n, 1000);
  EXPECT_EQ(text_of_kinds(20'000, 3).corpus.bytes, text.corpus.bytes);
  EXPECT_NE(text_of_kinds(20'000, 4).corpus.bytes, text.corpus.bytes);
}

TEST(L21_Text, AFullExpertHasAsManyTokensAsPlaces) {
  SmallMixture small;
  const KindsText text = text_of_kinds(100'000, 3);
  const RoutedText routed = route_held_out(small.model, text);
  EXPECT_GT(routed.dropped, 0);
  EXPECT_LT(routed.dropped, 0.5);
  EXPECT_EQ(routed.most_taken, small.model.config.expert_capacity(small.T));
  for (const auto& kind : routed.shares[0]) {
    double sum = 0;
    for (const double share : kind) sum += share;
    EXPECT_NEAR(sum, 1, 1e-9);
  }
}

TEST(L21_Runs, FlopsOfProducts) {
  for (const bool small : {true, false}) {
    const MixtureSizes sizes = mixture_sizes(small);
    for (const TransformerConfig& c : {sizes.mixture, sizes.dense_active, sizes.dense_total}) {
      Context meta("meta", 1);
      Transformer model(c);
      const Tensor ids(meta.device, {3, c.context}, DType::I32, Kind::Data, "ids");
      Tape tape;
      tape.backward(model.loss(ids, ids));
      EXPECT_EQ(meta.device.meter().totals(OpClass::Contraction).flops, mixture_flops(c, 3, c.context));
    }
  }
}

TEST(L21_Runs, ElementsThatRanksSendToExperts) {
  Context context("cpu", 3);
  const TransformerConfig c = mixture_sizes(true).mixture;
  const KindsText text = text_of_kinds(5000, 3);
  const Loader loader(text.corpus, c.context, 3);
  EXPECT_EQ(elements_to_experts(c, 4, 1), 0);
  for (const int64_t n : {1, 2, 4})
    EXPECT_EQ(step_on_ranks({.ranks = n, .device = "meta"}, c, loader, 4).sent, elements_to_experts(c, 4, n));
}

TEST(L21_Runs, DenseModelsHaveTheSizesOfTheMixture) {
  const MixtureSizes s = mixture_sizes(false);
  const int64_t router = s.mixture.layers * s.mixture.experts * s.mixture.channels;
  EXPECT_EQ(s.mixture.active_parameter_count(), s.dense_active.parameter_count() + router);
  EXPECT_EQ(s.mixture.parameter_count(), s.dense_total.parameter_count() + router);
}

}  // namespace
}  // namespace gradus
