// Adapters: the formula and its gradients, initial values, which layers get one, what is saved for them,
// merging, refusals.
#include <cmath>
#include <map>
#include <set>

#include "src/autograd/gradcheck.h"
#include "tests/nn/lora_testing.h"

namespace gradus {
namespace {

// y (rows, n) = x (rows, k) w^T, w (n, k).
std::vector<double> product(const std::vector<double>& x, const std::vector<double>& w, size_t k) {
  const size_t rows = x.size() / k, n = w.size() / k;
  std::vector<double> y(rows * n);
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < n; ++j)
      for (size_t c = 0; c < k; ++c) y[i * n + j] += x[i * k + c] * w[j * k + c];
  return y;
}

struct L12_Lora : LoraTest {
  L12_Lora() {  // a rank is at most a matrix's smaller side: in BERT's last layer, the number of labels
    if (config.labels > 0) config.labels = 8;
    batch = dummy_batch(config, 2, config.context);
  }
};
ON_DEVICES_AND_FAMILIES(L12_Lora);

TEST_P(L12_Lora, AtFirstLogitsAreTheSameAndOnlyBHasAGradient) {
  RecordProperty("exercise", "12.2");
  Transformer model(config);
  randomize(model, 1);
  const std::vector<double> before = logits(model);
  add_lora(model, ".*", {.r = 3, .alpha = 6, .dropout = 0.25}, 5);
  EXPECT_EQ(logits(model), before);
  Tape tape;
  tape.backward(batch.loss(model));
  for (const Parameter& p : model.parameters) {
    const bool a = p.name.ends_with(".lora_A.weight"), b = p.name.ends_with(".lora_B.weight");
    EXPECT_EQ(p.trainable(), a || b) << p.name;
    ASSERT_EQ(p.leaf.grad.defined(), a || b) << p.name;
    if (!a && !b) continue;
    const std::vector<double> g = to_host<double>(p.leaf.grad), zeros(g.size());
    EXPECT_EQ(g == zeros, a) << p.name;
  }
}

TEST_P(L12_Lora, NamesShapesAndFirstNumbers) {
  Transformer model(config);
  const size_t before = model.parameters.size();
  const int64_t numel = model.parameters.numel();
  add_lora(model, ".*", {.r = 5}, 5);
  std::vector<Linear*> linears = model.linears();
  ASSERT_EQ(model.parameters.size(), before + 2 * linears.size());
  auto p = model.parameters.begin();
  std::advance(p, int64_t(before));
  double sum = 0, squares = 0, fourth = 0, n = 0;
  std::set<double> drawn;
  int64_t added = 0;
  for (const Linear* l : linears) {
    const int64_t out = l->weight.value.shape()[0], in = l->weight.value.shape()[1];
    EXPECT_EQ(p->name, l->name + ".lora_A.weight");
    EXPECT_EQ(p->value.shape(), (Shape{5, in})) << p->name;
    EXPECT_EQ(&adapter_of(*l)->a, &*p);
    for (const double v : to_host<double>(p++->value)) {
      const double u = v * std::sqrt(double(in));
      EXPECT_LE(std::abs(u), 1.0000001) << l->name;
      sum += u, squares += u * u, fourth += u * u * u * u, ++n;
      EXPECT_TRUE(drawn.insert(u).second) << l->name << ": a random number was drawn twice";
    }
    EXPECT_EQ(p->name, l->name + ".lora_B.weight");
    EXPECT_EQ(p->value.shape(), (Shape{out, 5})) << p->name;
    EXPECT_EQ(&adapter_of(*l)->b, &*p);
    EXPECT_EQ(to_host<double>(p++->value), std::vector<double>(size_t(out * 5))) << l->name;
    added += 5 * (in + out);
  }
  EXPECT_EQ(model.parameters.numel(), numel + added);
  EXPECT_EQ(model.parameters.numel_trainable(), added);
  EXPECT_NEAR(sum / n, 0, 5 * std::sqrt(1 / (3 * n)));  // five standard errors of a uniform number's moments
  EXPECT_NEAR(squares / n, 1.0 / 3, 5 * std::sqrt(4 / (45 * n)));
  EXPECT_NEAR(fourth / n, 1.0 / 5, 5 * std::sqrt(16 / (225 * n)));
}

std::vector<std::vector<double>> first_a(const char* device, const TransformerConfig& config, uint64_t seed) {
  Context context(device, 9);
  Transformer model(config);
  add_lora(model, ".*", {}, seed);
  std::vector<std::vector<double>> found;
  for (const Linear* l : model.linears()) found.push_back(to_host<double>(adapter_of(*l)->a.value));
  return found;
}
TEST_P(L12_Lora, FirstNumbersAreTheSeedsOnEveryDevice) {
  const auto expected = first_a("cpu", config, 5);
  EXPECT_EQ(first_a(std::get<0>(GetParam()), config, 5), expected);
  for (const auto& a : first_a(std::get<0>(GetParam()), config, 6)) EXPECT_NE(a[0], expected[0][0]);
}

// (Pattern, the layers whose whole name it matches.)
TEST_P(L12_Lora, LayersAreChosenByTheirWholeNames) {
  using Names = std::vector<std::string>;
  const std::vector<std::pair<std::string, Names>> cases{
      {"h.0.attn.c_attn", {"h.0.attn.c_attn"}},
      {".*c_attn", {"h.0.attn.c_attn", "h.1.attn.c_attn"}},
      {"h\\.1\\..*c_proj", {"h.1.attn.c_proj", "h.1.mlp.c_proj"}},
      {".*attn|.*c_fc", {"h.0.attn.c_attn", "h.0.mlp.c_fc", "h.1.attn.c_attn", "h.1.mlp.c_fc"}}};
  for (const auto& [pattern, names] : cases) {
    Transformer model(config);
    add_lora(model, pattern, {.r = 2}, 5);
    Names found;
    for (const Linear* l : model.linears())
      if (adapter_of(*l)) found.push_back(l->name);
    EXPECT_EQ(found, names) << pattern;
    for (const Parameter& p : model.parameters)
      EXPECT_EQ(p.trainable(), p.name.find(".lora_") != std::string::npos) << p.name;
  }
}

TEST_P(L12_Lora, MergedWeightsAreTheSum) {
  RecordProperty("exercise", "12.3");
  for (const Precision& precision : {uniform(DType::F32), mixed(DType::BF16)}) {
    config.precision = precision;
    Transformer model(config);
    randomize(model, 1);
    add_lora(model, ".*c_proj|.*c_attn", {.r = 3, .alpha = 5, .precision = precision}, 5);
    draw_b(model);
    std::map<std::string, std::vector<double>> before;
    for (const Parameter& p : model.parameters) before[p.name] = to_host<double>(p.kept());
    merge_lora(model);
    const auto near = [&](const Linear& l, const std::vector<double>& want) {
      const std::vector<double> got = to_host<double>(l.weight.kept()),
                                value = to_host<double>(l.weight.value);
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(got[i], want[i], 2e-6) << l.name << ", element " << i;
        const float kept = float(got[i]);
        ASSERT_EQ(value[i], double(precision.master ? float(bf16(kept)) : kept)) << "value = round(master)";
      }
    };
    for (const Linear* l : model.linears()) {
      std::vector<double> want = before.at(l->weight.name);
      if (adapter_of(*l)) {  // the layer computes with the rounded copies of A and B
        const std::vector<double> a = to_host<double>(adapter_of(*l)->a.value),
                                  b = to_host<double>(adapter_of(*l)->b.value);
        const size_t in = size_t(l->weight.value.last());
        std::vector<double> turned(a.size());  // (in, r)
        for (size_t i = 0; i < a.size(); ++i) turned[i % in * 3 + i / in] = a[i];
        const std::vector<double> ba = product(b, turned, 3);
        for (size_t i = 0; i < want.size(); ++i) want[i] += 5.0 / 3 * ba[i];
      }
      near(*l, want);
    }
    unmerge_lora(model);
    for (const Linear* l : model.linears()) near(*l, before.at(l->weight.name));
    for (const Parameter& p : model.parameters) {
      if (p.name.ends_with("c_proj.weight") || p.name.ends_with("c_attn.weight")) continue;
      EXPECT_EQ(to_host<double>(p.kept()), before.at(p.name)) << p.name << " must not change";
    }
  }
}

TEST_P(L12_Lora, MergedLogitsAreTheSameAndTakeNoMoreWork) {
  Transformer model(config);
  model.initialize(1);
  const auto flops = [&] {
    context.device.meter().reset_totals();
    logits(model);
    return context.device.meter().flops();
  };
  const int64_t of_base = flops();
  const std::vector<double> base = logits(model);
  add_lora(model, ".*", {.r = 3, .alpha = 5}, 5);
  draw_b(model);
  const std::vector<double> adapted = logits(model);
  double change = 0;
  for (size_t i = 0; i < base.size(); ++i) change = std::max(change, std::abs(adapted[i] - base[i]));
  EXPECT_GT(change, 0.01) << "the adapters must change the logits, or the test proves nothing";
  EXPECT_GT(flops(), of_base);
  for (int pass = 0; pass < 2; ++pass) {  // a second time after unmerge_lora()
    merge_lora(model);
    EXPECT_EQ(flops(), of_base) << "a merged adapter must take no FLOPs";
    Tape tape;
    batch.loss(model);
    EXPECT_TRUE(tape.nodes().empty()) << "a merged weight must not train";
    const std::vector<double> merged = logits(model);
    for (size_t i = 0; i < base.size(); ++i) ASSERT_NEAR(merged[i], adapted[i], 1e-5) << "logit " << i;
    unmerge_lora(model);
    EXPECT_GT(flops(), of_base);
    const std::vector<double> unmerged = logits(model);
    for (size_t i = 0; i < base.size(); ++i) ASSERT_NEAR(unmerged[i], adapted[i], 1e-5) << "logit " << i;
  }
}

// Adapters of single layers. Shapes: x (2,3,in) or fewer, A (r,in), B (out,r).
struct L12_LoraLayer : ::testing::TestWithParam<const char*> {
  Context context{GetParam(), 3};
  Tensor tensor(const std::vector<double>& values, const Shape& shape, DType t) {
    return from_host(context.device, values, shape, t, Kind::Weight, "w");
  }
};
ON_DEVICES_WITH_DATA(L12_LoraLayer);

TEST_P(L12_LoraLayer, IsTheFormula) {
  RecordProperty("exercise", "12.2");
  const int64_t in = 7, out = 5, r = 3;
  for (const auto& [t, unit] : {std::pair(DType::F32, 0x1p-24), {DType::BF16, 0x1p-8}, {DType::F16, 0x1p-11}})
    for (const double alpha : {6.0, 1.0, -2.5})
      for (const double dropped : {0.0, 0.5}) {
        Parameters p;
        Linear layer(p, "l", in, out, uniform(t));
        Parameter &a = p.add("a", {r, in}, uniform(t)), &b = p.add("b", {out, r}, uniform(t));
        uint64_t stream = 0;
        for (Parameter& q : p) q.assign(normals(q.value.numel(), ++stream));
        adapt(layer, {a, b, alpha, dropped});
        const Tensor x = tensor(normals(2 * 3 * in, 9), {2, 3, in}, t);
        const auto again = [&] { current().dropout_ordinal() = 0; };  // the same elements are dropped
        again();
        const std::vector<double> low =
            product(to_host<double>(dropout(x, dropped)), to_host<double>(a.value), in);
        again();
        const Tensor y = (*adapter_of(layer))(x);
        again();
        const Tensor sum = layer(x), base = linear(x, layer.weight.value, layer.bias->value);
        EXPECT_EQ(y.shape(), (Shape{2, 3, out}));
        std::vector<double> want = product(low, to_host<double>(b.value), r), got = to_host<double>(y),
                            sums = to_host<double>(sum), bases = to_host<double>(base);
        for (size_t i = 0; i < want.size(); ++i) {
          want[i] *= alpha / double(r);
          ASSERT_NEAR(got[i], want[i], 8 * unit * (std::abs(want[i]) + 8 * std::abs(alpha)))
              << "element " << i;
          ASSERT_NEAR(sums[i], bases[i] + got[i], 2 * unit * std::abs(sums[i])) << "element " << i;
        }
      }
}

TEST(L12_LoraGradients, OfTheAdapterAndOfTheLayerBesideDifferences) {
  RecordProperty("exercise", "12.2");
  Context context("cpu", 5);
  const std::vector<Shape> shapes{{2, 2, 4}, {2, 4}, {3, 2}, {3, 4}, {3}};  // x, A, B, weight, bias
  for (const double dropped : {0.0, 0.5})
    for (const size_t count : {size_t(3), size_t(5)}) {  // the adapter alone; the layer with it
      const auto f = [&](const std::vector<Tensor>& in) {
        current().dropout_ordinal() = 0;
        Parameters p;
        Linear layer(p, "l", 4, 3, uniform(DType::F64));
        Parameter &a = p.add("a", shapes[1], uniform(DType::F64)),
                  &b = p.add("b", shapes[2], uniform(DType::F64));
        a.value = in[1], b.value = in[2];
        adapt(layer, {a, b, 5, dropped});
        if (count == 3) return (*adapter_of(layer))(in[0]);
        layer.weight.value = in[3], layer.bias->value = in[4];
        return layer(in[0]);
      };
      for (unsigned training = 1; training < 1U << count; ++training) {
        std::vector<GradcheckInput> inputs;
        for (size_t i = 0; i < count; ++i)
          inputs.push_back({shapes[i], normals(shapes[i].numel(), i), (training >> i & 1) != 0});
        const GradcheckResult result = gradcheck(f, inputs);
        EXPECT_TRUE(result.passed()) << "inputs that train " << training << ": " << result.where;
        for (size_t i = 0; i < count; ++i)
          EXPECT_EQ(gradcheck(f, inputs, 1, 1.01, int(i)).passed(), (training >> i & 1) == 0)
              << "a 1 % wrong gradient passed: input  " << i;
      }
    }
}

}  // namespace
}  // namespace gradus
