// Lesson 07: gradients of micro-batches, splits, weights of means, saved bytes, published runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>

#include "lessons/07_accumulation/ways.h"
#include "tests/data/loader_testing.h"
#include "tests/lessons/published_testing.h"
#include "tests/mistakes.h"
#include "tests/nn/generate_testing.h"

namespace gradus {
namespace {

using Gradients = std::vector<std::vector<double>>;  // one per parameter

const TransformerConfig kModel{
    .vocab = 11, .context = 5, .layers = 2, .heads = 2, .channels = 8, .dropout = 0.2};

// Six sequences of length 0 to 5; the targets behind their ends are padding.
TextBatch batch_of_six() {
  TextBatch batch{6, 5, {}, {}};
  const int counted[] = {5, 1, 3, 0, 5, 2};
  for (int b = 0; b < 6; ++b)
    for (int t = 0; t < 5; ++t) {
      batch.ids.push_back((7 * b + 3 * t * t + t) % 11);
      batch.targets.push_back(t < counted[b] ? (5 * b + 2 * t + 1) % 11 : -1);
    }
  return batch;
}

Gradients gradients_of(Transformer& model) {
  Gradients all;
  for (const Parameter& p : model.parameters) all.push_back(to_host<double>(p.leaf.grad));
  return all;
}
// The largest |a - b| / |b| over the parameters.
double distance(const Gradients& a, const Gradients& b) {
  double most = 0;
  for (size_t p = 0; p < b.size(); ++p) {
    double difference = 0, size = 0;
    for (size_t i = 0; i < b[p].size(); ++i)
      difference += std::pow(a[p][i] - b[p][i], 2), size += std::pow(b[p][i], 2);
    most = std::max(most, std::isnan(difference) ? INFINITY : std::sqrt(difference / size));
  }
  return most;
}
Gradients times(double factor, Gradients all) {
  for (std::vector<double>& of_one : all)
    for (double& x : of_one) x *= factor;
  return all;
}

// The loss and the gradient of the whole batch: the mean over all targets that are not padding.
struct Whole {
  double loss;
  Gradients gradients;
  Whole(Transformer& model, const TextBatch& b) {
    model.parameters.zero_grad();
    current().first_sample = b.first_sample;
    {
      Tape tape;
      const Shape shape{b.sequences, b.T};
      const Tensor mean = model.loss(ids_of(b.ids, shape), ids_of(b.targets, shape));
      tape.backward(mean);
      loss = item(mean);
    }
    gradients = gradients_of(model);
    current().first_sample = 0;
    model.parameters.zero_grad();
  }
};

struct L07_Accumulate : ::testing::Test {
  Context context{"cpu", 3};
  Transformer model{kModel};
  const TextBatch batch = batch_of_six();
  L07_Accumulate() { randomize(model, 1); }
};

TEST_F(L07_Accumulate, AllSplitsGiveTheGradientOfTheBatch) {
  RecordProperty("exercise", "07.3");
  for (const char* device : {"cpu", "emu"})
    for (const auto attention : {attention_plain, attention_flash}) {
      const Context own(device, 3);
      TransformerConfig c = kModel;
      c.attention = attention;
      Transformer trained(c);
      randomize(trained, 1);
      const Whole whole(trained, batch);
      for (const Split& split : {Split{6}, {3, 3}, {2, 2, 2}, {1, 1, 1, 1, 1, 1}, {3, 1, 2}, {1, 5}}) {
        trained.parameters.zero_grad();
        const double loss = accumulate(trained, batch, split).loss;
        const Gradients got = gradients_of(trained);
        EXPECT_LE(distance(got, whole.gradients), 1e-6) << split.size() << " micro-batches on " << device;
        EXPECT_GT(distance(times(1.01, got), whole.gradients), 1e-3) << "1 % wrong";
        EXPECT_NEAR(loss, whole.loss, 1e-6 * whole.loss) << split.size() << " micro-batches on " << device;
      }
    }
}

TEST_F(L07_Accumulate, AddsToTheGradientsThatAreThere) {
  const Whole whole(model, batch);
  for (const double times_now : {1.0, 2.0, 3.0}) {
    accumulate(model, batch, {2, 4});
    EXPECT_LE(distance(gradients_of(model), times(times_now, whole.gradients)), 1e-6) << times_now;
  }
  model.parameters.zero_grad();
  accumulate(model, batch, {4, 2});
  EXPECT_LE(distance(gradients_of(model), whole.gradients), 1e-6);
}

TEST_F(L07_Accumulate, LeavesFirstSampleAtZero) {
  context.first_sample = 9;  // a value from before
  const double loss = accumulate(model, batch, {2, 4}).loss;
  EXPECT_EQ(context.first_sample, 0);
  EXPECT_NEAR(loss, Whole(model, batch).loss, 1e-6 * loss);
}

// A part of a batch has the masks of the whole batch, and the mean over its own targets.
TEST_F(L07_Accumulate, APartHasTheMasksOfTheWholeBatch) {
  RecordProperty("exercise", "07.3");
  const TextBatch part = batch.part(2, 4);
  const Whole whole(model, part);
  const double loss = accumulate(model, part, {1, 3}).loss;
  EXPECT_LE(distance(gradients_of(model), whole.gradients), 1e-6);
  TextBatch one = part.part(0, 1), three = part.part(1, 3);
  const double means = Whole(model, one).loss + Whole(model, three).loss;
  one.first_sample = three.first_sample = 0;
  const double masks = 0.3 * Whole(model, one).loss + 0.7 * Whole(model, three).loss;
  EXPECT_NEAR(loss, whole.loss, 1e-6) << usual_mistake(
      {{std::abs(loss - means) < 1e-6,
        "each micro-batch's loss is its own mean, not its share of the batch's loss"},
       {std::abs(loss - masks) < 1e-6, "each micro-batch has the dropout masks of samples 0, 1, ..."}});
  TextBatch at_zero = part;
  at_zero.first_sample = 0;
  EXPECT_GT(distance(Whole(model, at_zero).gradients, whole.gradients), 1e-2) << "different masks";
}

TEST_F(L07_Accumulate, ASplitThatDoesNotAddUpIsRejected) {
  for (const Split& wrong : {Split{}, {5}, {7}, {3, 2}, {4, 3}, {6, 6}, {1, 1, 1, 1, 1}, {7, -1}}) {
    EXPECT_NE(refusal([&] { accumulate(model, batch, wrong); }), "") << wrong.size() << " micro-batches";
    for (const Parameter& p : model.parameters) EXPECT_TRUE(!p.leaf.written) << p.name << " has a gradient";
  }
  EXPECT_EQ(refusal([&] { accumulate(model, batch, {4, 2}); }), "");
}

TEST_F(L07_Accumulate, PartAndCounted) {
  EXPECT_EQ(batch.counted(), 16);
  const TextBatch part = batch.part(2, 3), last = part.part(1, 2), none = batch.part(3, 1);
  EXPECT_TRUE(part.sequences == 3 && part.T == 5 && part.first_sample == 2);
  EXPECT_EQ(part.ids, (std::vector<int32_t>(batch.ids.begin() + 10, batch.ids.begin() + 25)));
  EXPECT_EQ(part.targets, (std::vector<int32_t>(batch.targets.begin() + 10, batch.targets.begin() + 25)));
  EXPECT_EQ(part.counted(), 8);
  EXPECT_EQ(last.first_sample, 3) << "the index in the whole batch, not in the part";
  EXPECT_EQ(last.ids, (std::vector<int32_t>(batch.ids.begin() + 15, batch.ids.begin() + 25)));
  EXPECT_EQ(last.counted(), 5);
  EXPECT_EQ(none.counted(), 0);
}

TEST_F(L07_Accumulate, ReadBatchIsTheWindowsOfTheStep) {
  const Corpus corpus = random_corpus(3000, 100);
  const Loader loader(corpus, 16, 7);
  for (const int64_t step : {0, 1, 9}) {
    const Windows all = training(loader, step, 0, 8, 16);
    for (const bool is_ragged : {false, true}) {
      const TextBatch read = read_batch(loader, step, 8, 16, is_ragged);
      EXPECT_EQ(read.ids, all.inputs) << "padding changes only targets";
      EXPECT_EQ(read.targets == all.targets, !is_ragged);
      EXPECT_EQ(read.targets, read_batch(loader, step, 8, 16, is_ragged).targets) << "read twice";
      EXPECT_TRUE(read.sequences == 8 && read.T == 16 && read.first_sample == 0);
    }
    const TextBatch ragged = read_batch(loader, step, 8, 16, true);
    std::set<int64_t> numbers;
    int64_t sum = 0;
    for (int64_t b = 0; b < 8; ++b) {
      const int64_t n = ragged.part(b, 1).counted();
      for (int64_t i = 16 * b; i < 16 * (b + 1); ++i)
        EXPECT_EQ(ragged.targets[i], i - 16 * b < n ? all.targets[i] : -1) << "the sequence has length " << n;
      EXPECT_GE(n, 1) << "sequence " << b;
      numbers.insert(n), sum += n;
    }
    EXPECT_EQ(ragged.counted(), sum);
    EXPECT_GE(numbers.size(), 3u) << "sequences should have different lengths";
  }
}

TEST_F(L07_Accumulate, EvenSplit) {
  RecordProperty("exercise", "07.1");
  EXPECT_EQ(even_split(16, 4), (Split{4, 4, 4, 4}));
  const Split three = even_split(17, 3);
  EXPECT_EQ(three, (Split{6, 6, 5})) << usual_mistake(
      {{three == Split{5, 5, 5}, "only 15 of 17 sequences are in a micro-batch; 2 are lost"},
       {three == Split{7, 5, 5} || three == Split{5, 5, 7}, "one micro-batch takes the whole remainder"}});
  for (int64_t sequences = 1; sequences <= 40; ++sequences)
    for (int64_t n = 1; n <= sequences; ++n) {
      const Split split = even_split(sequences, n);
      ASSERT_EQ(int64_t(split.size()), n) << sequences;
      ASSERT_EQ(std::accumulate(split.begin(), split.end(), int64_t(0)), sequences) << n;
      ASSERT_TRUE(std::is_sorted(split.rbegin(), split.rend())) << sequences << " in " << n;
      ASSERT_LE(split.front() - split.back(), 1) << sequences << " in " << n;
    }
  using Asked = std::pair<int64_t, int64_t>;
  for (const Asked& a : {Asked(4, 0), {4, 5}, {4, -1}, {0, 1}, {0, 0}, {-2, 1}})
    EXPECT_NE(refusal([&] { even_split(a.first, a.second); }), "") << a.first << " in " << a.second;
}

TEST_F(L07_Accumulate, WeightsOfMeans) {
  RecordProperty("exercise", "07.2");
  using Counts = std::vector<int64_t>;
  const int64_t large = int64_t(1) << 40;
  const std::pair<Counts, std::vector<double>> cases[] = {{{4, 4, 4, 4}, {0.25, 0.25, 0.25, 0.25}},
                                                          {{3, 5, 2}, {0.3, 0.5, 0.2}},
                                                          {{4, 0, 12}, {0.25, 0, 0.75}},
                                                          {{0, 0, 9, 0}, {0, 0, 1, 0}},
                                                          {{7}, {1}},
                                                          {{large, 3 * large}, {0.25, 0.75}}};
  for (const auto& [n, expected] : cases) {
    const std::vector<double> weights = weights_of_means(n);
    ASSERT_EQ(weights.size(), n.size());
    const bool equal = weights == std::vector<double>(n.size(), 1 / double(n.size()));
    for (size_t i = 0; i < n.size(); ++i)
      EXPECT_NEAR(weights[i], expected[i], 1e-15) << usual_mistake(
          {{equal, "all means have the same weight, but a mean over more targets needs a larger weight"},
           {weights[i] == double(n[i]), "the weights are numbers of targets; is their sum 1?"}});
  }
  // The means of (1, 2), (4) and (8, 16, 32), weighted, give the mean of all six numbers: 63 / 6.
  const std::vector<double> w = weights_of_means({2, 1, 3});
  EXPECT_NEAR(w[0] * 1.5 + w[1] * 4 + w[2] * 56 / 3, 10.5, 1e-13);
}

TEST(L07_Ways, WorstDistance) {
  const Context context("cpu", 1);
  const auto run = [](const Gradients& g) { return gradus::Run{g, {}, {}, 0}; };
  const gradus::Run b = run({{3, 4}, {1, 2, 2}, {10}});
  EXPECT_EQ(worst_distance(b, b), 0);
  EXPECT_DOUBLE_EQ(worst_distance(run({{3, 4}, {1, 2, 2}, {11}}), b), 0.1);
  EXPECT_DOUBLE_EQ(worst_distance(run({{3, 5}, {1, 2, 2}, {11}}), b), 0.2) << "|b| is 5";
  EXPECT_DOUBLE_EQ(worst_distance(run({{6, 8}, {-1, -2, -2}, {11}}), b), 2);
  EXPECT_DOUBLE_EQ(worst_distance(b, run({{3, 4}, {1, 2, 2}, {20}})), 0.5) << "relative to the second run";
  for (size_t p = 0; p < 3; ++p)
    for (const bool in_a : {true, false}) {
      Gradients bad = b.first_gradient;
      bad[p].back() = NAN;
      EXPECT_TRUE(std::isnan(in_a ? worst_distance(run(bad), b) : worst_distance(b, run(bad))))
          << "parameter " << p << " has a NaN";
    }
  // A missing gradient does not count as equal.
  for (const gradus::Run& other : {run({}), run({{3, 4}, {1, 2, 2}}), run({{3, 4}, {1, 2}, {10}})}) {
    EXPECT_TRUE(std::isnan(worst_distance(other, b)));
    EXPECT_TRUE(std::isnan(worst_distance(b, other)));
  }
  EXPECT_TRUE(std::isnan(worst_distance(run({}), run({}))));
}

TEST(L07_Ways, PredictedBytesAreWhatATapeSaves) {
  TransformerConfig configs[] = {
      kModel, kModel, {.vocab = 37, .context = 9, .layers = 3, .heads = 3, .channels = 21}};
  configs[1].dropout = 0;
  for (const TransformerConfig& c : configs)
    for (const int64_t sequences : {1, 2, 7}) {
      const Context meta("meta");
      Transformer model(c);
      const int64_t T = c.context, all = 2 * sequences + 1;
      const std::vector<int32_t> tokens(size_t(all * T), 1);
      const TextBatch batch{all, T, tokens, tokens};
      const int64_t saved = accumulate(model, batch, {sequences, sequences, 1}).saved_bytes;
      EXPECT_EQ(predicted_bytes(c, sequences), saved) << "of the largest micro-batch";
      EXPECT_EQ(predicted_bytes(c, sequences), sequences * predicted_bytes(c, 1));
      EXPECT_EQ(predicted_bytes(c, all), accumulate(model, batch, {all}).saved_bytes);
    }
}

TEST(L07_Ways, EachAddsUpToTheBatch) {
  std::set<std::string> names;
  std::optional<bool> whole;  // was the last whole batch ragged?
  for (const Way& way : ways(16)) {
    EXPECT_EQ(std::accumulate(way.split.begin(), way.split.end(), int64_t(0)), 16) << way.name;
    EXPECT_GE(*std::min_element(way.split.begin(), way.split.end()), 1) << way.name;
    EXPECT_TRUE(names.insert(way.name).second) << way.name << " is listed twice";
    if (way.split.size() == 1) whole = way.ragged;
    EXPECT_TRUE(whole == way.ragged) << way.name << ": there is no whole batch to compare with";
  }
}

// Reference numbers, 4.3, in MiB: 4 sequences as one batch, and as 4 micro-batches of 1.
TEST(L07_PublishedRuns, BertLargeWithAccumulation) {
  const PublishedRuns runs = published_accumulation();
  expect_figures(runs, {14'949, 8'681});
  expect_rows_add_up(runs.gap);
  EXPECT_EQ(runs.gap.whole, int64_t(6'268) << 20);
  expect_explained(runs.gap);
}

}  // namespace
}  // namespace gradus
