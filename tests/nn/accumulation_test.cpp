// Gradients of one batch in micro-batches, in the three families of models: with `count` and `first_sample`
// they add up to those of the whole batch, also with dropout and with padding.
#include <cmath>
#include <numeric>

#include "src/train/dummy.h"
#include "tests/nn/families_testing.h"

namespace gradus {
namespace {

using Values = std::vector<double>;
using Split = std::vector<int64_t>;
constexpr int64_t kSamples = 6;
// Per sample, the number of targets that are not padding; a label counts if the number is above 2. The middle
// micro-batch of 3 + 1 + 2 has no target.
constexpr int64_t kCounted[kSamples] = {5, 1, 7, 0, 12, 3};
const Split kSplits[] = {{6}, {3, 3}, {2, 2, 2}, {1, 1, 1, 1, 1, 1}, {3, 1, 2}};

double norm(const Values& x) { return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0)); }
Values plus(Values a, const Values& b, double factor = 1) {
  for (size_t i = (a.resize(b.size()), 0); i < b.size(); ++i) a[i] += factor * b[i];
  return a;
}
Tensor numbers(const Values& values, const Shape& shape, DType dtype = DType::F32) {
  return from_host(current().device, values, shape, dtype, Kind::Data, "numbers");
}

// Values by parameter name; q, k and v of an attention bias are separate.
using Named = std::map<std::string, Values>;
Named by_name(const Transformer& model) {
  Named all;
  for (const Parameter& p : model.parameters) {
    const Values x = to_host<double>(p.leaf.grad);
    const auto third = ptrdiff_t(x.size() / 3);
    if (p.name.ends_with("c_attn.bias"))
      for (int i = 0; i < 3; ++i)
        all[p.name + " of " + "qkv"[i]] = Values(x.begin() + i * third, x.begin() + (i + 1) * third);
    else
      all[p.name] = x;
  }
  return all;
}

struct How {
  bool count = true;
  double first_factor = 1, factor = 1;  // factors of the first micro-batch's gradient, of every one's
};
struct Training {
  Transformer model;
  DummyBatch batch;
  double counted = 0;  // targets that are not padding
  explicit Training(const TransformerConfig& c) : model(c), batch(dummy_batch(c, kSamples, c.context)) {
    randomize(model, 1);
    std::vector<int32_t> targets = to_host<int32_t>(batch.targets);
    const int64_t of_sample = int64_t(targets.size()) / kSamples;  // one label, or T tokens
    for (int64_t b = 0; b < kSamples; ++b)
      for (int64_t t = of_sample == 1 ? kCounted[b] > 2 : kCounted[b]; t < of_sample; ++t)
        targets[b * of_sample + t] = -1;
    batch.targets = ids_of(targets, batch.targets.shape());
    counted = double(targets.size()) - double(std::count(targets.begin(), targets.end(), -1));
  }
  // Adds the gradients of the samples [first, first + n) and returns their loss.
  double backward_of(int64_t first, int64_t n, const How& how = {}) {
    const auto part = [&](const Tensor& x) { return x.defined() ? x.narrow(first, n) : x; };
    current().first_sample = first;
    Tape tape;
    const DType loss_type = statistics_dtype(model.config.precision.value);
    const Tensor count = how.count ? numbers({counted}, {1}, loss_type) : Tensor();
    const Tensor loss = model.loss(part(batch.ids), part(batch.targets), part(batch.types), count);
    tape.backward(loss, numbers({how.factor * (first == 0 ? how.first_factor : 1)}, {1}, loss_type));
    return item(loss);
  }
  // The gradients of the batch, and the sum of the losses as "loss".
  Named pass(const Split& split = {kSamples}, const How& how = {}) {
    model.parameters.zero_grad();
    double loss = 0;
    int64_t first = 0;
    for (const int64_t n : split) loss += backward_of(first, n, how), first += n;
    Named all = by_name(model);
    return all["loss"] = {loss}, all;
  }
};

// |a - b| / |b|; `least` ignores the biases of keys. A number added to all scores of a query changes no
// weight, so the gradient of a key's bias is only rounding, unless keys are rotated by their position. Its
// error is compared with the gradient of the query's bias, a sum of terms of the same size.
struct Distances {
  double least = INFINITY, most = 0;
  std::string worst;
};
Distances distances(const Named& a, const Named& b) {
  Distances d;
  for (const auto& [name, x] : a) {
    const bool key = name.ends_with(" of k");
    const Values& measure = b.at(key ? name.substr(0, name.size() - 1) + "q" : name);
    const double distance = norm(plus(x, b.at(name), -1)) / norm(measure);
    if (std::isnan(distance) || distance > d.most) d.most = distance, d.worst = name;
    if (!key && name != "loss") d.least = std::min(d.least, distance);
  }
  return d;
}

// The family, and attention_flash or attention_plain.
struct L07_Accumulation : ::testing::TestWithParam<std::string> {
  Context context{"cpu", 3};
  static TransformerConfig config(std::string_view device = "cpu") {
    TransformerConfig c = family(GetParam().substr(0, GetParam().find('_')));
    c.dropout = 0.2;
    if (GetParam().ends_with("flash")) c.attention = attention_flash;
    if (device == "emu") c.vocab = 7, c.context = 4, c.layers = 1, c.channels = 12;
    return c;
  }
};
INSTANTIATE_TEST_SUITE_P(Families, L07_Accumulation,
                         ::testing::Values("gpt", "gpt_flash", "bert", "bert_flash", "neox", "neox_flash"),
                         [](const auto& info) { return info.param; });

// Compares all splits with the whole batch; gradients with the error `wrong` must fail. Bound: `once`, plus
// `each` per micro-batch.
void expect_the_batchs(Training t, double once, double each, const How& wrong, const char* what) {
  const Named whole = t.pass({kSamples}, {.count = false});
  for (const Split& split : kSplits) {
    const double bound = once + double(split.size()) * each;
    const Distances d = distances(t.pass(split), whole);
    EXPECT_LE(d.most, bound) << d.worst << " in " << split.size() << " micro-batches, " << what;
    EXPECT_GT(distances(t.pass(split, wrong), whole).least, 2 * bound) << what;
  }
}

TEST_P(L07_Accumulation, EverySplitGivesTheGradientOfTheBatch) {
  for (const char* device : {"cpu", "emu"}) {
    const Context own(device, 3);
    expect_the_batchs(Training(config(device)), 1e-6, 0, {.first_factor = 1.01}, device);
  }
  for (const auto& [name, x] : Training(config()).pass())
    EXPECT_EQ(norm(x) < 1e-4, name.ends_with(" of k") && config().rotary == 0)
        << name << ": only gradients of key biases may be pure rounding";
}

// Terms are bf16 and their sum is fp32, or both are fp16: a rounding error of 2^-9 (bf16) or 2^-11 (fp16) of
// a number, per term, or per term and per sum.
TEST_P(L07_Accumulation, InSixteenBits) {
  TransformerConfig c = config();
  c.precision = precision_recipe("mixed");
  expect_the_batchs(Training(c), 0x1p-9, 0, {.factor = 1.01}, "mixed");
  c.precision = precision_recipe("half");
  expect_the_batchs(Training(c), 0x1p-11, 0x1p-11, {.factor = 1.01}, "half");
}

// On meta, from the second step on, when gradients have memory.
TEST_P(L07_Accumulation, BytesAreThoseOfOneMicroBatch) {
  const Context meta("meta");
  Transformer model(config());
  const auto bytes = [&](int64_t samples, int64_t micro_batches) {
    int64_t saved = 0;
    for (int64_t m = 0; m < 2 * micro_batches; ++m) {
      if (m == micro_batches) current().device.meter().reset_peak();
      Tape tape;
      const DummyBatch b = dummy_batch(model.config, samples, model.config.context);
      const Tensor loss = model.loss(b.ids, b.targets, b.types, numbers({1}, {1}));
      saved = std::max(saved, tape.saved_bytes());
      tape.backward(loss);
    }
    const Usage& peak = current().device.meter().at_peak();
    return std::array{saved, peak[Kind::Activation], peak.allocated()};
  };
  for (const int64_t samples : {1, 2, 3}) {
    const auto one = bytes(samples, 1), twice = bytes(2 * samples, 1);
    for (const int64_t n : {2, 3, 6}) EXPECT_EQ(bytes(samples, n), one) << n << " times " << samples;
    for (const int i : {0, 1}) EXPECT_GT(twice[i], 19 * one[i] / 10) << "a micro-batch twice as large";
  }
}

using Part = std::tuple<int64_t, int64_t, int64_t>;  // first, n, first_sample: of six samples
std::array<Values, 2> in_parts(Tensor (*f)(const Tensor&), const std::vector<Part>& parts) {
  std::array<Values, 2> all;
  for (const auto& [first, n, first_sample] : parts) {
    Values values;
    for (int64_t i = first * 48; i < (first + n) * 48; ++i) values.push_back(std::sin(double(i * i)));
    Tensor x = numbers(values, {n, 4, 12});
    Leaf leaf;
    attach(x, leaf, "x");
    current().first_sample = first_sample;
    Tape tape;
    const Tensor y = f(x);
    tape.backward(y, numbers(Values(y.numel(), 1), y.shape()));
    for (const double v : to_host<double>(y)) all[0].push_back(v);
    for (const double v : to_host<double>(leaf.grad)) all[1].push_back(v);
  }
  return all;
}

TEST(L07_Dropout, APartOfABatchDropsWhatTheBatchDropsThere) {
  RecordProperty("exercise", "07.6");
  for (const char* device : {"cpu", "emu"}) {
    const Context context(device, 11);
    for (Tensor (*f)(const Tensor&) :
         {+[](const Tensor& x) { return dropout(x, 0.5); },
          +[](const Tensor& x) { return attention_plain(x, 2, Mask::None, 0.5); },
          +[](const Tensor& x) { return attention_flash(x, 2, Mask::None, 0.5); }}) {
      const auto whole = in_parts(f, {{0, 6, 0}}), wrong = in_parts(f, {{0, 2, 0}, {2, 4, 0}});
      EXPECT_EQ(in_parts(f, {{0, 2, 0}, {2, 4, 2}}), whole) << "0 and 1, then 2 to 5, on " << device;
      for (const int i : {0, 1})
        EXPECT_NE(wrong[i], whole[i]) << "samples 2 to 5 must not have the masks of samples 0 to 3";
    }
  }
}

}  // namespace
}  // namespace gradus
